"""Threat: the view says of an answer what is true of another, hides that two differ, or lets slip what was redacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from evals.batches import under_load
from evals.types import Answer, CaseGrade
from reports.build import build_view
from reports.view import PromptView, View


def prompt_of(view: View, task: str, prompt: str) -> PromptView:
    return next(p for t in view.tasks if t.name == task for p in t.prompts if p.id == prompt)


def test_equal_answers_are_one_side_and_differing_ones_a_pair(run: Any) -> None:
    view = run.view()
    same = prompt_of(view, "csv", "w1")
    assert same.base and same.base.who == ("plain ×2", "mtp@1", "control@1")
    assert same.pairs == ()
    (pair,) = prompt_of(view, "csv", "w2").pairs
    assert pair.side.who == ("mtp@1",)
    assert pair.comparison and pair.comparison.divergence
    assert pair.margin and pair.margin.gap == 0.31
    assert pair.lost == ("doubled-quote", "embedded-newline")
    assert pair.gained == ()


def test_equal_texts_of_other_tokens_are_not_one_side(run: Any) -> None:
    first = next(a for a in run.answers if a.arm == "mtp@1" and a.prompt == "w1" and a.task == "csv")
    run.answers[run.answers.index(first)] = msgspec.structs.replace(first, ids=(*first.ids[:-1], 999_999))
    assert [p.side.who for p in prompt_of(run.view(), "csv", "w1").pairs] == [("mtp@1",)]


def test_a_base_that_does_not_repeat_itself_is_a_pair(run: Any) -> None:
    second = next(a for a in run.answers if a.repeat == 1 and a.prompt == "w1" and a.task == "prose")
    run.answers[run.answers.index(second)] = msgspec.structs.replace(second, text=second.text + " again")
    pairs = prompt_of(run.view(), "prose", "w1").pairs
    assert ("plain, repeat 2",) in [p.side.who for p in pairs]


def test_a_probe_is_named_for_what_it_is(run: Any) -> None:
    first = next(a for a in run.answers if a.arm == "mtp@1" and a.prompt == "w1" and a.task == "csv")
    run.answers.append(msgspec.structs.replace(first, probe="state"))
    base = prompt_of(run.view(), "csv", "w1").base
    assert base and base.who[-1] == "mtp@1, asked again later"


def test_a_failed_answer_is_a_side_of_its_own(run: Any) -> None:
    (pair,) = prompt_of(run.view(), "prose", "w4").pairs
    assert pair.side.failure and pair.side.failure.signal == 11


def test_without_the_base_there_is_no_pretence_of_one(run: Any) -> None:
    run.answers = [a for a in run.answers if a.arm != "plain"]
    prompt = prompt_of(run.view(), "csv", "w1")
    assert prompt.base is None
    assert [pair.side.who for pair in prompt.pairs] == [("mtp@1", "control@1")]
    assert (prompt.pairs[0].lost, prompt.pairs[0].gained) == ((), ())


def test_cases_are_tallied_by_arm(run: Any) -> None:
    csv = run.view().tasks[0]
    crash = next(row for row in csv.cases if row.name == "embedded-newline")
    cells = {cell.arm: (cell.passed, len(cell.outcomes), cell.lost, cell.gained) for cell in crash.cells}
    assert cells == {"plain": (4, 4, 0, 0), "mtp@1": (3, 4, 1, 0), "control@1": (4, 4, 0, 0)}


def test_trouble_of_the_machine_is_neither_lost_nor_gained(run: Any) -> None:
    grade = next(g for g in run.grades if g.arm == "mtp@1" and g.prompt == "w2" and g.task == "csv")
    infra = tuple(CaseGrade(c.case, "infra") for c in grade.cases)
    run.grades[run.grades.index(grade)] = msgspec.structs.replace(grade, cases=infra)
    view = run.view()
    assert prompt_of(view, "csv", "w2").pairs[0].lost == ()
    assert all(cell.lost == 0 for row in view.tasks[0].cases for cell in row.cells)


def test_unknown_tasks_are_shown_by_what_the_records_say(run: Any) -> None:
    run.tasks = {}
    csv = run.view().tasks[0]
    assert csv.title == "csv"
    assert [row.name for row in csv.cases][:2] == ["crlf", "bare-lf"]


def test_anchors_are_unique_and_findings_point_at_them(make_run: Callable[[], Any]) -> None:
    run = make_run()
    names = {"a b": "d" * 64, "a-b": "d" * 64, "<a>": "d" * 64, "日本": "d" * 64, "語": "d" * 64}
    prompts = dict.fromkeys(names, ("p/1", "p.1", "p" * 300, "p" * 300 + "2"))
    run.manifest = msgspec.structs.replace(run.manifest, tasks=names, prompts=prompts)
    view = run.view()
    anchors = [t.anchor for t in view.tasks] + [p.anchor for t in view.tasks for p in t.prompts]
    assert len(set(anchors)) == len(anchors) == 25
    assert all(
        anchor.replace("-", "").isalnum() and anchor.isascii() and len(anchor) <= 80 for anchor in anchors
    )
    found = make_run().view()
    assert found.reasons[0].anchor == prompt_of(found, "csv", "w2").pairs[0].anchor


def test_no_home_and_no_key(run: Any) -> None:
    said = msgspec.json.encode(run.view()).decode()
    assert "someone" not in said
    assert "hf_" not in said


def test_a_redacted_view_holds_no_text_of_prompt_or_answer(run: Any) -> None:
    said = msgspec.json.encode(run.view(redact=True)).decode()
    for secret in ("parse_csv", "lighthouse", "Wording 2", "say hi", " stars", "IndexError", "counted"):
        assert secret not in said, secret
    for kept in ("case-lost", "doubled-quote", "0.31", "no_worse"):
        assert kept in said, kept


def test_answers_are_read_once_and_their_ids_are_not_kept(run: Any) -> None:
    alive: list[Answer] = []

    def stream() -> Iterator[Answer]:
        for answer in run.answers:
            alive.append(answer)
            yield answer

    view = build_view(
        run.verdict, run.manifest, stream(), run.comparisons, run.margins, run.grades, run.tasks
    )
    assert view.answers == len(alive) == len(run.answers)
    assert '"ids"' not in msgspec.json.encode(view).decode()


@pytest.mark.parametrize("empty", ["answers", "comparisons", "grades"])
def test_a_run_with_parts_missing_still_has_a_view(run: Any, empty: str) -> None:
    setattr(run, empty, [])
    assert [task.name for task in run.view().tasks] == ["csv", "prose"]


def loaded(run: Any) -> None:
    """Have the run decode everything once more with four requests in flight; nothing else changes."""
    every = [run.answers, run.grades, run.comparisons]
    renamed = [[msgspec.structs.replace(r, arm=f"{r.arm}/n4") for r in records] for records in every]
    run.answers += [
        msgspec.structs.replace(a, batch=0, decode_s=a.decode_s and 4 * a.decode_s) for a in renamed[0]
    ]
    run.grades += renamed[1]
    run.comparisons += [msgspec.structs.replace(c, base="plain/n4") for c in renamed[2]]
    run.manifest = msgspec.structs.replace(
        run.manifest, arms=under_load(run.manifest.arms, (1, 4), 0),
        repeats=run.manifest.repeats | {f"{arm}/n4": n for arm, n in run.manifest.repeats.items()},
    )  # fmt: skip


def test_each_load_is_shown_beside_its_own_plain(run: Any) -> None:
    loaded(run)
    view = run.view()
    assert view.base_of["mtp@1/n4"] == "plain/n4"
    alone, together = (p for p in view.tasks[0].prompts if p.id == "w2")
    assert [(p.base_arm, p.base.who) for p in (alone, together) if p.base] == [
        ("plain", ("plain ×2", "control@1")),
        ("plain/n4", ("plain/n4 ×2", "control@1/n4")),
    ]
    assert [pair.side.who for pair in together.pairs] == [("mtp@1/n4",)]
    assert together.pairs[0].lost == ("doubled-quote", "embedded-newline")
    assert alone.anchor != together.anchor
    crash = next(row for row in view.tasks[0].cases if row.name == "embedded-newline")
    assert {cell.arm: cell.lost for cell in crash.cells if cell.lost} == {"mtp@1": 1, "mtp@1/n4": 1}


def test_the_throughput_of_a_load_is_that_of_its_batches(run: Any) -> None:
    loaded(run)
    csv = run.view().tasks[0]
    speeds = {spread.arm: spread for spread in csv.speeds}
    assert speeds["plain/n4"].answers == 2  # two repeats of one batch
    assert speeds["plain/n4"].median > speeds["plain"].median
