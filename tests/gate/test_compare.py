"""The threat: two runs that asked different things are compared, and other questions read as another head."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evals.recording import RunWriter
from evals.records import RecordError
from evals.types import Answer, Arm, CaseGrade, Failure, Grade, Manifest
from gate.compare import Moves, compare_runs
from gate.pairing import CompareError

ARMS = (("plain", "plain", 0), ("mtp@1", "mtp", 1))


def arm(name: str, method: Any, k: int, **changes: Any) -> Arm:
    fields: dict[str, Any] = {
        "name": name,
        "method": method,
        "k": k,
        "engine": "genai",
        "device": "CPU",
        "target_digest": "a" * 64,
        "head_digest": "e" * 64 if k else None,
        "versions": {"openvino": "2026.4.1"},
    }
    return Arm(**{**fields, **changes})


def answer(arm: str, task: str, prompt: str, **changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "arm": arm,
        "task": task,
        "prompt": prompt,
        "repeat": 0,
        "prompt_sha256": hashlib.sha256(f"{task}/{prompt}".encode()).hexdigest(),
        "prompt_tokens": 10,
        "max_new_tokens": 64,
        "ids": tuple(range(11)),
        "text": "text",
        "steps": (1, *[1] * 10),
        "finish": "stop",
        "decode_s": 1.0,
        "accepted": None if arm == "plain" else 8,
        "drafted": None if arm == "plain" else 10,
    }
    return Answer(**{**fields, **changes})


def grade(arm: str, task: str, prompt: str, **outcomes: Any) -> Grade:
    cases = tuple(CaseGrade(case=case, outcome=outcome) for case, outcome in outcomes.items())
    return Grade(arm=arm, task=task, prompt=prompt, repeat=0, cases=cases)


@pytest.fixture
def lay_run(tmp_path: Path) -> Callable[..., Path]:
    """lay(name, answers=change of each answer, grades=..., verdict=..., **changes of the manifest)"""

    def lay(
        name: str,
        *,
        arms: tuple[Arm, ...] = tuple(arm(*a) for a in ARMS),
        change: Callable[[Answer], Answer | None] = lambda a: a,
        outcomes: Callable[[str, str], dict[str, str]] = lambda arm, prompt: {"one": "pass", "two": "pass"},
        decision: str | None = "serve",
        reasons: tuple[str, ...] = (),
        **changes: Any,
    ) -> Path:
        manifest = Manifest(
            schema=1,
            tool_version="0.1.0",
            created="2026-11-30T12:00:00Z",
            model="sample",
            model_digest_before="a" * 64,
            arms=arms,
            tasks={"csv": "c" * 64, "prose": "d" * 64},
            prompts={"csv": ("w1", "w2"), "prose": ("w1",)},
            repeats={a.name: 1 for a in arms},
            policy_digest="b" * 64,
        )
        manifest = msgspec.structs.replace(manifest, **changes)
        with RunWriter.create(tmp_path / name, manifest) as writer:
            for task in manifest.tasks:
                for prompt in manifest.prompts.get(task, ()):
                    for each in arms:
                        made = change(answer(each.name, task, prompt))
                        if made is not None:
                            writer.answer(made)
                        writer.grade(grade(each.name, task, prompt, **outcomes(each.name, prompt)))
        if decision is not None:
            verdict = {
                "decision": decision,
                "reasons": reasons,
                "tasks": [
                    {"task": t, "arm": "mtp@1", "decision": decision, "reasons": reasons}
                    for t in manifest.tasks
                ],
                "more": "ignored",
            }
            (tmp_path / name / "verdict.json").write_bytes(msgspec.json.encode(verdict))
        return tmp_path / name

    return lay


def quiet(moves: Moves) -> bool:
    return not moves.unpaired and not moves.cases and not any(v.moved for v in moves.verdicts)


def test_a_run_beside_itself_moves_nowhere(lay_run: Callable[..., Path]) -> None:
    run = lay_run("a")
    moves = compare_runs(run, run)
    assert quiet(moves)
    assert moves.settings == ()
    assert {(t.task, t.arm, t.prompts, t.same_text, t.cases) for t in moves.tasks} == {
        ("csv", "plain", 2, 2, 4),
        ("csv", "mtp@1", 2, 2, 4),
        ("prose", "plain", 1, 1, 2),
        ("prose", "mtp@1", 1, 1, 2),
    }
    assert {(name, s.ratio, s.prompts) for name, s in moves.speeds.items()} == {
        ("plain", 1.0, 3),
        ("mtp@1", 1.0, 3),
    }
    assert len(moves.verdicts) == 3


def test_verdicts_that_moved(lay_run: Callable[..., Path]) -> None:
    moves = compare_runs(lay_run("a"), lay_run("b", decision="do_not_serve", reasons=("case-lost",)))
    whole, csv, prose = moves.verdicts
    assert (whole.task, whole.before, whole.after, whole.moved) == (None, "serve", "do_not_serve", True)
    assert (csv.task, csv.arm, csv.reasons_after) == ("csv", "mtp@1", ("case-lost",))
    assert prose.moved


def test_the_same_decision_for_another_reason_has_moved(lay_run: Callable[..., Path]) -> None:
    a = lay_run("a", decision="do_not_serve", reasons=("case-lost",))
    b = lay_run("b", decision="do_not_serve", reasons=("slower-than-plain",))
    assert all(v.moved for v in compare_runs(a, b).verdicts)


def test_cases_that_moved(lay_run: Callable[..., Path]) -> None:
    a = lay_run("a", outcomes=lambda arm, prompt: {"one": "pass", "two": "fail"})
    b = lay_run(
        "b",
        outcomes=lambda arm, prompt: {
            "one": "crash" if arm == "mtp@1" and prompt == "w2" else "pass",
            "two": "fail",
        },
    )
    moves = compare_runs(a, b)
    (case,) = moves.cases
    assert (case.task, case.arm, case.prompt, case.case) == ("csv", "mtp@1", "w2", "one")
    assert (case.before, case.after) == ("pass", "crash")
    scores = {(t.task, t.arm): (t.passed_before, t.passed_after, t.cases) for t in moves.tasks}
    assert scores["csv", "mtp@1"] == (2, 1, 4)
    assert scores["csv", "plain"] == (2, 2, 4)


def test_a_case_that_a_machine_failed_on_counts_nowhere(lay_run: Callable[..., Path]) -> None:
    b = lay_run("b", outcomes=lambda arm, prompt: {"one": "infra", "two": "pass"})
    moves = compare_runs(lay_run("a"), b)
    assert moves.cases == ()
    assert all(t.cases == t.prompts for t in moves.tasks)
    assert "csv/w1 plain: not judged in both runs: one" in moves.unpaired


def test_acceptance_and_texts_that_moved(lay_run: Callable[..., Path]) -> None:
    def worse(a: Answer) -> Answer:
        if a.arm != "mtp@1" or a.task != "csv":
            return a
        return msgspec.structs.replace(a, accepted=3, text="another")

    moves = compare_runs(lay_run("a"), lay_run("b", change=worse))
    by = {(t.task, t.arm): t for t in moves.tasks}
    assert (by["csv", "mtp@1"].acceptance_before, by["csv", "mtp@1"].acceptance_after) == (0.8, 0.3)
    assert (by["csv", "mtp@1"].same_text, by["csv", "plain"].same_text) == (0, 2)
    assert by["prose", "mtp@1"].acceptance_after == 0.8
    assert (by["csv", "plain"].acceptance_before, by["csv", "plain"].accepted_before) == (None, None)


def test_unknown_acceptance_is_not_zero(lay_run: Callable[..., Path]) -> None:
    b = lay_run("b", change=lambda a: msgspec.structs.replace(a, accepted=None, drafted=None))
    moves = compare_runs(lay_run("a"), b)
    assert {(t.acceptance_before, t.acceptance_after) for t in moves.tasks} == {(None, None)}
    none = lay_run("c", change=lambda a: msgspec.structs.replace(a, accepted=0, drafted=0))
    assert {t.acceptance_after for t in compare_runs(lay_run("d"), none).tasks} == {None}


def test_speeds_are_paired_by_prompt(lay_run: Callable[..., Path]) -> None:
    def faster(a: Answer) -> Answer | None:
        if a.task == "prose":
            return None
        return msgspec.structs.replace(a, decode_s=0.5 if a.arm == "mtp@1" else 1.0)

    moves = compare_runs(lay_run("a"), lay_run("b", change=faster))
    assert moves.speeds["mtp@1"].ratio == 2.0
    assert moves.speeds["mtp@1"].by_prompt == {"csv/w1": 2.0, "csv/w2": 2.0}
    assert moves.speeds["plain"].ratio == 1.0
    assert "prose/w1 mtp@1: answered only in run A" in moves.unpaired


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompt_sha256": "f" * 64}, "csv/w1 plain: the prompt was another text"),
        ({"max_new_tokens": 32}, "csv/w1 plain: budget of 64 tokens in run A, 32 in run B"),
        ({"failure": Failure(kind="crash", message="")}, "csv/w1 plain: answered in run A, crash in run B"),
    ],
)
def test_another_question_is_not_paired(
    lay_run: Callable[..., Path], changes: dict[str, Any], sentence: str
) -> None:
    def change(a: Answer) -> Answer:
        return (
            msgspec.structs.replace(a, **changes)
            if (a.arm, a.task, a.prompt) == ("plain", "csv", "w1")
            else a
        )

    moves = compare_runs(lay_run("a"), lay_run("b", change=change))
    assert [u for u in moves.unpaired if u.startswith(sentence)]
    assert {(t.task, t.arm): t.prompts for t in moves.tasks}["csv", "plain"] == 1
    assert sorted(moves.speeds["plain"].by_prompt) == ["csv/w2", "prose/w1"]


def test_a_task_with_other_files_is_not_paired(lay_run: Callable[..., Path]) -> None:
    b = lay_run(
        "b",
        tasks={"csv": "f" * 64, "prose": "d" * 64, "mine": "0" * 64},
        prompts={"csv": ("w1",), "prose": ("w1",)},
    )
    moves = compare_runs(lay_run("a"), b)
    assert {t.task for t in moves.tasks} == {"prose"}
    assert {v.task for v in moves.verdicts} == {None, "prose"}
    assert any(u.startswith("task csv: its files differ") for u in moves.unpaired)
    assert "task mine: only in run B" in moves.unpaired


def test_an_arm_of_another_k_is_not_paired(lay_run: Callable[..., Path]) -> None:
    b = lay_run("b", arms=(arm("plain", "plain", 0), arm("mtp@1", "mtp", 3), arm("mtp@5", "mtp", 5)))
    moves = compare_runs(lay_run("a"), b)
    assert {t.arm for t in moves.tasks} == {"plain"}
    assert "arm mtp@1: mtp with K = 1 in run A, mtp with K = 3 in run B" in moves.unpaired
    assert "arm mtp@5: only in run B" in moves.unpaired


def test_nothing_in_common_is_refused(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    a = lay_run("a")
    with pytest.raises(CompareError, match=r"an arm in common, found none: .*arm plain: only in run A"):
        compare_runs(a, lay_run("arms", arms=(arm("other", "plain", 0),)))
    with pytest.raises(CompareError, match=r"a task in common, found none: .*task mine: only in run B"):
        compare_runs(a, lay_run("tasks", tasks={"mine": "0" * 64}))
    with pytest.raises(CompareError, match=r"a prompt in common, found none .*answered only in run A"):
        compare_runs(a, lay_run("answers", change=lambda a: None))
    with pytest.raises(RecordError):
        compare_runs(a, tmp_path / "nowhere")


def test_what_the_runs_were_made_with_is_said_once(lay_run: Callable[..., Path]) -> None:
    newer = tuple(
        arm(*a, versions={"openvino": "2027.1"}, head_digest="f" * 64 if a[2] else None) for a in ARMS
    )
    b = lay_run(
        "b", arms=newer, policy_digest="9" * 64, environment={"in_force": {"KV_CACHE_PRECISION": "u8"}}
    )
    assert compare_runs(lay_run("a"), b).settings == (
        "policy_digest: bbbbbbbbbbbb… then, 999999999999… now",
        "in_force.KV_CACHE_PRECISION: none then, u8 now",
        "versions.openvino: 2026.4.1 then, 2027.1 now",
        "mtp@1: head_digest: eeeeeeeeeeee… then, ffffffffffff… now",
    )


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff"])
def test_a_run_without_a_verdict_is_compared_without(
    lay_run: Callable[..., Path], content: bytes | None
) -> None:
    a, b = lay_run("a"), lay_run("b", decision=None)
    if content is not None:
        (b / "verdict.json").write_bytes(content)
    moves = compare_runs(a, b)
    assert moves.verdicts == ()
    assert any(u.startswith("verdicts: run B has no verdict.json") for u in moves.unpaired)
    assert len(moves.tasks) == 4


def test_later_repeats_and_probes_are_not_mixed_in(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    a, b = lay_run("a"), lay_run("b")
    odd = [
        answer("mtp@1", "csv", "w1", text="odd", accepted=0, **c) for c in ({"repeat": 1}, {"probe": "state"})
    ]
    odd_grade = msgspec.structs.replace(grade("mtp@1", "csv", "w1", one="fail"), repeat=1)
    for name, records in (("answers.jsonl", odd), ("grades.jsonl", [odd_grade])):
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        (b / name).write_bytes(lines + (b / name).read_bytes())
    moves = compare_runs(a, b)
    assert quiet(moves)
    assert {t.acceptance_after for t in moves.tasks if t.arm == "mtp@1"} == {0.8}
