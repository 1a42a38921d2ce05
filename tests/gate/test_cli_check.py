"""The threat: a main job that works in parts and not as a whole.

Everything here is the real command on the bundled sample: real engines, a real sandbox, files on disk. Which verdict
comes out is this machine's affair; that it follows from what was recorded is not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import msgspec
import pytest

from evals.records import RunReader
from evals.sample import sample_dir
from gate.schema import published_schema

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

GATE = [sys.executable, "-P", "-m", "gate"]


def check(cwd: Path, *args: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*GATE, "check", "--out", "run", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=500, **options)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One run of two tasks, one that executes programs and one that doesn't."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, check(folder, "--model", "sample", "--task", "csv", "--task", "count")


def answers_of(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "answers.jsonl").read_text().splitlines()]


def test_exit_code_and_files_say_the_same(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, result = ran
    verdict = json.loads((folder / "run" / "verdict.json").read_text())
    expected = {"serve": 0, "serve_with_limits": 1, "do_not_serve": 1, "inconclusive": 3}
    assert result.returncode == expected[verdict["decision"]], result.stderr
    assert verdict["decision"] != "inconclusive", verdict["sentence"]
    assert {t["task"] for t in verdict["tasks"]} == {"csv", "count"}


def test_verdict_is_valid_by_the_published_schema(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    verdict = json.loads((ran[0] / "run" / "verdict.json").read_text())
    jsonschema.validate(verdict, published_schema())


def test_every_planned_answer_and_grade_is_recorded(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    records = RunReader(ran[0] / "run")
    answers = list(records.answers())
    keys = {answer.key for answer in answers if answer.probe is None}
    planned = {
        (arm, task, prompt, repeat, 0, None)
        for arm, repeats in records.manifest.repeats.items()
        for task, prompts in records.manifest.prompts.items()
        for prompt in prompts
        for repeat in range(repeats)
    }
    assert keys == planned
    assert {(g.arm, g.task, g.prompt, g.repeat) for g in records.grades()} == {key[:4] for key in planned}
    assert records.end is not None and records.end.complete
    probed = {(a.arm, a.session) for a in answers if a.probe == "state"}
    assert probed == {(arm.name, session) for arm in records.manifest.arms for session in (0, 1)}


def test_counters_are_the_engines(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    for answer in RunReader(ran[0] / "run").answers():
        assert answer.failure is None
        assert sum(answer.steps) == len(answer.ids) <= answer.max_new_tokens
        if answer.arm == "plain":
            assert answer.accepted is None and answer.drafted is None and set(answer.steps) == {1}
        else:
            assert answer.drafted and 0 <= (answer.accepted or 0) <= answer.drafted


def test_terminal_table_fits_100_columns(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    assert ran[1].stdout.strip()
    assert max(len(line) for line in ran[1].stdout.splitlines()) <= 100
    assert "\x1b" not in ran[1].stdout + ran[1].stderr, "colour or a bar where there is no terminal"


def test_report_is_one_file_without_network(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    page = (ran[0] / "run" / "report.html").read_text()
    for reach in ("http://", "https://", "<script src", "@import"):
        assert reach not in page.replace("http://www.w3.org", ""), reach
    assert set(re.findall("<link[^>]*>", page)) <= {'<link rel="icon" href="data:,">'}


def test_says_how_many_answers_before_decoding(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    planned = len(answers_of(ran[0] / "run"))
    assert f"decoding {planned} answers" in ran[1].stderr
    assert " to go" in ran[1].stderr


def test_report_and_grade_reach_the_same_verdict_without_decoding(
    ran: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    before = json.loads((ran[0] / "run" / "verdict.json").read_text())
    copy = shutil.copytree(ran[0] / "run", tmp_path / "elsewhere")
    for command in ("report", "grade"):
        result = subprocess.run([*GATE, command, "elsewhere"], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == ran[1].returncode, result.stderr
        after = json.loads((copy / "verdict.json").read_text())
        assert {**after, "created": ""} == {**before, "created": ""}


def test_another_policy_is_applied_without_decoding(
    ran: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    copy = shutil.copytree(ran[0] / "run", tmp_path / "run")
    (tmp_path / "strict.toml").write_text("[thresholds]\nmin_drafts = 1000000\n")
    command = [*GATE, "report", "run", "--policy", "strict.toml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    verdict = json.loads((copy / "verdict.json").read_text())
    assert (result.returncode, verdict["decision"]) in {(3, "inconclusive"), (1, "do_not_serve")}
    assert verdict["decision"] != "serve"


def test_verify_accepts_the_gated_bytes_and_no_others(
    ran: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run = ran[0] / "run"
    model = shutil.copytree(sample_dir(), tmp_path / "model")
    command = [*GATE, "verify", "--model", str(model), "--attestation", str(run / "attestation.json")]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == ran[1].returncode
    weights = model / "openvino_mtp_model.bin"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    changed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert changed.returncode == 1 and "head" in changed.stdout


def wait_for_answers(run: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if (run / "answers.jsonl").exists() and (run / "answers.jsonl").read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} answers: exit {process.poll()}")


def heed_ctrl_c() -> None:
    """A shell's background job, as a CI job may be, hands on an ignored SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_leaves_what_was_decoded_and_the_same_command_goes_on(tmp_path: Path) -> None:
    command = [*GATE, "check", "--model", "sample", "--task", "count", "--out", "run"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    ) as process:
        wait_for_answers(tmp_path / "run", 3, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    kept = list(RunReader(tmp_path / "run").answers())
    assert len(kept) >= 3
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert verdict["decision"] == "inconclusive"
    end = RunReader(tmp_path / "run").end
    assert end is not None and not end.complete and "interrupted" in end.reason

    went_on = check(tmp_path, "--model", "sample", "--task", "count")
    assert went_on.returncode in (0, 1), went_on.stderr
    whole = list(RunReader(tmp_path / "run").answers())
    assert [msgspec.json.encode(a) for a in whole[: len(kept)]] == [msgspec.json.encode(a) for a in kept]
    assert len({a.key for a in whole}) == len(whole)


def test_another_run_in_the_same_directory_is_refused(
    ran: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    shutil.copytree(ran[0] / "run", tmp_path / "run")
    result = check(tmp_path, "--model", "sample", "--task", "csv", "--k", "2")
    assert result.returncode == 2 and "mtp@2" in result.stderr and "Traceback" not in result.stderr


def test_a_budget_that_is_too_small_is_inconclusive(tmp_path: Path) -> None:
    result = check(tmp_path, "--model", "sample", "--budget", "8s")
    assert result.returncode == 3, result.stderr
    end = RunReader(tmp_path / "run").end
    assert end is not None and not end.complete and "budget" in end.reason
    assert json.loads((tmp_path / "run" / "verdict.json").read_text())["decision"] == "inconclusive"


def test_a_disk_that_fills_up_leaves_what_was_decoded(tmp_path: Path) -> None:
    """From the fourth answer on no file may grow: a file size limit fails a write in the way that a full disk does."""
    filling = (
        "import resource\nfrom evals.recording import RunWriter\n"
        "write, count = RunWriter.answer, []\n"
        "def answer(self, a):\n"
        "    count.append(a)\n"
        "    if len(count) == 4: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))\n"
        "    write(self, a)\n"
        "RunWriter.answer = answer\nfrom gate.cli import main; main()"
    )
    arguments = [
        "check",
        "--model",
        "sample",
        "--task",
        "count",
        "--no-control",
        "--no-state-probe",
        "--out",
        "run",
    ]
    command = [sys.executable, "-P", "-c", filling, *arguments]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    assert "answers.jsonl: cannot be written" in result.stderr and "could not write" in result.stderr, (
        result.stderr
    )
    assert "inconclusive" in result.stdout.lower()
    assert len(list(RunReader(tmp_path / "run").answers())) == 3


@pytest.mark.slow
def test_a_model_that_changes_during_the_run_voids_it(tmp_path: Path) -> None:
    model = shutil.copytree(sample_dir(), tmp_path / "model")
    command = [*GATE, "check", "--model", "model", "--task", "count", "--out", "run"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_answers(tmp_path / "run", 2, process)
        config = model / "generation_config.json"
        config.write_text(config.read_text() + "\n")
        _, err = process.communicate(timeout=240)
    assert process.returncode == 3, err
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert verdict["decision"] == "inconclusive" and "model-changed" in verdict["reasons"]
    assert "generation_config.json" in err


def test_a_sandbox_that_cannot_be_trusted_is_inconclusive_before_decoding(tmp_path: Path) -> None:
    """Without bubblewrap's binary (a PATH and an environment that lack it) there is no sandbox here."""
    broken = (
        "import sandbox.choose as c; from sandbox.contract import SandboxUnavailable\n"
        "def none(name=None): raise SandboxUnavailable('no sandbox that could be trusted: enable user namespaces')\n"
        "c.choose = none\nfrom gate.cli import main; main()"
    )
    command = [
        sys.executable,
        "-P",
        "-c",
        broken,
        "check",
        "--model",
        "sample",
        "--task",
        "csv",
        "--out",
        "run",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 3, result.stderr
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert verdict["decision"] == "inconclusive" and "sandbox-not-trusted" in verdict["reasons"]
    assert "user namespaces" in json.dumps(verdict)
    assert not list(RunReader(tmp_path / "run").answers())


@pytest.mark.slow
def test_a_user_task_is_gated_beside_the_built_in_ones(tmp_path: Path, repo: Path) -> None:
    folder = shutil.copytree(repo / "tasks" / "builtin" / "count", tmp_path / "mine")
    text = (folder / "task.toml").read_text().replace('name = "count"', 'name = "mycount"')
    (folder / "task.toml").write_text(text)
    result = check(tmp_path, "--model", "sample", "--tasks", "mine", "--task", "mycount")
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert [t["task"] for t in verdict["tasks"]] == ["mycount"], result.stderr


@pytest.mark.slow
def test_engine_settings_are_recorded(tmp_path: Path) -> None:
    result = check(
        tmp_path, "--model", "sample", "--task", "count", "--k", "2", "--ov", "KV_CACHE_PRECISION=f32",
        "--ov", "INFERENCE_PRECISION_HINT=f32",
    )  # fmt: skip
    assert result.returncode in (0, 1), result.stderr
    records = RunReader(tmp_path / "run")
    assert {a.name for a in records.manifest.arms if a.method == "mtp"} == {"mtp@2"}
    assert all(a.properties["KV_CACHE_PRECISION"] == "f32" for a in records.manifest.arms)
    texts: dict[str, set[str]] = {}
    for answer in records.answers():
        texts.setdefault(answer.prompt, set()).add(answer.text)
    assert all(len(t) == 1 for t in texts.values()), (
        "f32 weights' arithmetic and an f32 KV cache leave nothing to flip"
    )


@pytest.mark.slow
def test_parent_stays_without_the_engine(tmp_path: Path) -> None:
    """The engine and transformers live in child processes; the parent never imports them."""
    probe = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('LOADED', [m for m in ('openvino', 'openvino_genai', 'transformers', 'torch')"
        " if m in sys.modules], file=sys.stderr))\n"
        "from gate.cli import main; main()"
    )
    command = [
        sys.executable,
        "-P",
        "-c",
        probe,
        "check",
        "--model",
        "sample",
        "--task",
        "count",
        "--out",
        "run",
    ]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ), timeout=300
    )
    assert "LOADED []" in result.stderr, result.stderr
