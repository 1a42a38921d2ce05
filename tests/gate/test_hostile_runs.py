"""The threat: a run directory made by somebody else that steers the reader's terminal, reads beside itself, leaks
through a redacted report what was asked and answered, or ends a command in a traceback.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evals.records

Command = Callable[..., tuple[int, str]]
STEERS = "\n::warning::x\n\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\x00<script>alert(1)</script>"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
READ = ("report", "grade", "card", "export-run", "compare")


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change each JSON record of a file in place."""
    if file.suffix == ".json":
        records = [json.loads(file.read_text())]
    else:
        records = [json.loads(line) for line in file.read_text().splitlines()]
    for record in records:
        change(record)
    file.write_text("\n".join(json.dumps(record) for record in records) + "\n")


@pytest.fixture
def run(unpack: Callable[[str], Path]) -> Path:
    return unpack("first-wired")


def arguments(how: str, run: Path) -> list[Path | str]:
    return [how, run, run] if how == "compare" else [how, run]


@pytest.mark.parametrize("how", [*READ, "runs"])
def test_no_name_steers_a_terminal(how: str, run: Path, command: Command) -> None:
    def poison(manifest: dict[str, Any]) -> None:
        manifest["model"] = manifest["tool_version"] = STEERS
        manifest["environment"][STEERS] = STEERS
        for arm in manifest["arms"]:
            arm["versions"] = {STEERS: STEERS}

    other = run.rename(run.with_name("\x1b[31mrun"))
    edit(other / "manifest.json", poison)
    edit(other / "end.json", lambda end: end.update(complete=False, reason=STEERS))
    edit(other / "answers.jsonl", lambda answer: answer.update(text=STEERS, streamed=STEERS))
    (other / "grades.jsonl").write_text('{"arm": "plain')
    code, said = command(*(["runs", other.parent] if how == "runs" else arguments(how, other)))
    assert code in (0, 1, 3) and "internal error" not in said
    assert not UNSAFE.search(said) and "\n::" not in said, said


def test_the_comparison_as_json_is_json_that_steers_nothing(run: Path, command: Command) -> None:
    edit(run / "manifest.json", lambda manifest: manifest["environment"].update({"processor": STEERS}))
    other = run.rename(run.with_name("other"))
    code, said = command("compare", other, other, "--json")
    assert code == 0 and said.isascii() and not UNSAFE.search(said)
    assert json.loads(said)["tasks"]


def test_a_redacted_report_leaks_nothing(unpack: Any, command: Command) -> None:
    """Nothing of a prompt, an answer or an observed value, no key and no home directory, in any file that is shared."""
    run = unpack("with-margins")
    home, key = "/home/alicia/models", "hf_abcdefghijklmnopqrstuvwxyz"
    edit(run / "prompts.json", lambda tasks: [p.update(text="CANARY-P") for ps in tasks.values() for p in ps])
    edit(run / "answers.jsonl", lambda answer: answer.update(text=f"CANARY-A {answer['text']}"))
    edit(
        run / "grades.jsonl",
        lambda grade: [
            grade.update(reason="CANARY-R"),
            [
                case.update(observed="CANARY-O", expected="CANARY-E", outcome="crash")
                for case in grade["cases"]
            ],
        ],
    )
    edit(
        run / "manifest.json",
        lambda manifest: manifest["environment"].update({"HF_TOKEN": "CANARY-K", "from": home, "note": key}),
    )
    edit(run / "end.json", lambda end: end.update(complete=False, reason=f"{home}: full, {key}"))
    edit(run / "sandbox.json", lambda box: box.update(remedy=f"look into {home}"))
    code, said = command("report", run, "--redact", "--github")
    assert code == 3
    shared = {
        file.name: file.read_text() for file in run.glob("*") if file.suffix in (".html", ".md", ".xml")
    }
    shared |= {file.name: file.read_text() for file in run.glob("attestation*.json")}
    shared |= {"said": said, "verdict.json": (run / "verdict.json").read_text()}
    assert {"report.html", "summary.md", "junit.xml"} <= shared.keys()
    for name, text in shared.items():
        for secret in ("CANARY", "alicia", key):
            assert secret not in text, (
                name,
                text[max(0, text.index(secret) - 200) : text.index(secret) + 50],
            )


@pytest.mark.parametrize("name", ["../elsewhere", "..", "/etc", "a/b", ""])
def test_a_task_s_name_leads_nowhere_else(name: str, run: Path, command: Command) -> None:
    edit(run / "manifest.json", lambda manifest: manifest["tasks"].update({name: "0" * 64}))
    code, said = command("report", run)
    assert code == 2 and "expected the name of a task" in said


GARBAGE = (b"\xff\xfe\x00garbage\n", b"[" * 50_000 + b"\n", b'{"schema": 1e400}\n')
READS = [
    (file, how)
    for how, files in {
        "report": ("manifest.json", "answers.jsonl", "grades.jsonl", "prompts.json", "policy.toml"),
        "grade": ("answers.jsonl", "prompts.json"),
        "card": ("policy.toml",),
        "export-run": ("manifest.json", "answers.jsonl", "grades.jsonl", "prompts.json"),
        "compare": ("manifest.json", "answers.jsonl", "grades.jsonl"),
    }.items()
    for file in files
]


@pytest.mark.parametrize(("file", "how"), READS)
def test_garbage_is_a_sentence(file: str, how: str, run: Path, command: Command) -> None:
    for garbage in GARBAGE if how == "report" else GARBAGE[:1]:
        (run / file).write_bytes(garbage)
        code, said = command(*arguments(how, run))
        assert code == 2 and file in said, said
        assert "internal error" not in said and "Traceback" not in said


@pytest.mark.parametrize("how", READ)
def test_a_line_without_an_end_is_not_read_into_memory(
    how: str, run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = max(map(len, (run / "answers.jsonl").read_bytes().splitlines(True)))
    for module in (evals.records, __import__("evals.export_run").export_run):
        monkeypatch.setattr(module, "MAX_LINE", longest)
    with (run / "answers.jsonl").open("ab") as file:
        file.write(b'{"arm": "' + b"x" * 2 * longest)
    code, said = command(*arguments(how, run))
    assert code == 2 and f"expected at most {longest} bytes" in said


@pytest.mark.parametrize("how", READ)
def test_a_torn_line_is_left_out_and_said(how: str, run: Path, command: Command) -> None:
    with (run / "margins.jsonl").open("ab") as file:
        file.write(b'{"arm": "mtp@')
    code, said = command(*arguments(how, run))
    assert code in (0, 1)
    assert f"{run}: margins.jsonl: the last line was cut after 13 bytes and is left out" in said


@pytest.mark.parametrize("name", ["verdict.json", "report.html", "junit.xml", "summary.md"])
def test_what_cannot_be_written_is_no_pass(name: str, run: Path, command: Command) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name / "in the way").mkdir(parents=True)
    code, said = command("report", run, "--quiet")
    assert code == 3 and f"could not write to {run}" in said
    assert not [file for file in run.iterdir() if re.fullmatch(r"\..*\.\d+", file.name)]
