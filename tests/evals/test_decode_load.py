"""The threat: a batch that is decoded in part, differs between arms or repeats, or goes down without a word."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evals.arms import build_arms
from evals.batches import under_load
from evals.decode import Asked, Decoding, Plan
from evals.digest import ModelDigests
from evals.messages import Message
from evals.types import Answer

DIGESTS = ModelDigests(whole="w", target="t", head="h", files={})


def plan(tmp_path: Path, *words: str, concurrency: tuple[int, ...] = (2,), repeats: int = 2) -> Plan:
    arms = under_load(build_arms(DIGESTS), concurrency, seed=0)
    return Plan(
        model=tmp_path,
        arms=arms,
        repeats={arm.name: repeats for arm in arms},
        asked=tuple(Asked("t", str(n), word, 3) for n, word in enumerate(words)),
        stop_ids=frozenset({2}),
    )


@pytest.fixture
def fake(repo: Path) -> dict[str, Any]:
    return {"command": (sys.executable, "-P", str(repo / "tests" / "fixtures" / "fake_worker.py"))}


def run(plan: Plan, options: dict[str, Any]) -> list[Answer]:
    with Decoding(plan, **options) as decoding:
        answers = list(decoding)
        assert (decoding.done_count, decoding.planned) == (len(answers), len(answers))
        assert decoding.remaining_s in (None, 0)
    return answers


def members(answers: list[Answer]) -> dict[tuple[str, int, int | None], list[str]]:
    found: dict[tuple[str, int, int | None], list[str]] = {}
    for answer in answers:
        found.setdefault((answer.arm, answer.repeat, answer.batch), []).append(answer.prompt)
    return found


def test_all_arms_and_repeats_have_the_same_batches_in_the_same_order(
    tmp_path: Path, fake: dict[str, Any]
) -> None:
    answers = run(plan(tmp_path, "a", "b", "c"), fake)
    by_batch: dict[int | None, set[tuple[str, ...]]] = {}
    for (_, _, batch), prompts in members(answers).items():
        by_batch.setdefault(batch, set()).add(tuple(prompts))
    assert set(by_batch) == {0, 1}
    assert all(len(orders) == 1 and len(next(iter(orders))) == 2 for orders in by_batch.values())
    fills = [a for a in answers if a.probe == "fill"]
    assert len(fills) == 4
    assert {a.prompt for a in fills} == {answers[0].prompt}
    assert [a.order for a in answers if a.arm == "plain/n2"] == list(range(8))
    asked = (tmp_path / "batches").read_text().split("\n")[:-1]
    assert len(asked) == 8
    assert len(set(asked)) == 2


def test_loads_are_decoded_one_after_the_other_and_arms_in_turn(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "a", "b", concurrency=(1, 2), repeats=1), fake)
    assert [a.arm for a in answers] == [
        "plain", "mtp@1", "mtp@1", "plain", "plain/n2", "plain/n2", "mtp@1/n2", "mtp@1/n2",
    ]  # fmt: skip
    assert [a.batch for a in answers] == [None] * 4 + [0] * 4


@pytest.mark.parametrize("sequential", [False, True])
def test_a_probe_asks_for_the_first_batch_again(
    sequential: bool, tmp_path: Path, fake: dict[str, Any]
) -> None:
    probed = replace(plan(tmp_path, "a", "b", "c", "d", repeats=1), state_probe=True)
    answers = [a for a in run(probed, fake | {"sequential": sequential}) if a.arm == "mtp@1/n2"]
    first = [a.prompt for a in answers[:2]]
    again = [(a.prompt, a.session, a.batch) for a in answers if a.probe == "state"]
    assert again == [(p, session, 0) for session in (0, 1) for p in first]
    assert (tmp_path / "starts-mtp").read_text() == "2"


def test_a_crash_takes_the_whole_batch_and_no_more(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "a", "segv", "b", "c", "d", "e", repeats=1), fake)
    assert len(answers) == 12
    for arm in ("plain/n2", "mtp@1/n2"):
        mine = [a for a in answers if a.arm == arm]
        (down,) = {a.batch for a in mine if a.prompt == "1"}
        assert {a.batch for a in mine if a.failure} == {down}
        failures = [a.failure for a in mine if a.batch == down]
        assert all(f is not None and (f.kind, f.signal) == ("crash", 11) for f in failures)
        assert len(failures) == 2
        assert down is not None
        assert down < 2
    assert (tmp_path / "starts-plain").read_text() == "2"


def test_one_that_is_refused_leaves_the_others_of_its_batch(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "refused", "a", repeats=1), fake)
    kinds = {(a.arm, a.prompt): a.failure.kind if a.failure else None for a in answers}
    assert kinds[("plain/n2", "0")] == "refused"
    assert kinds[("plain/n2", "1")] is None
    assert (tmp_path / "starts-plain").read_text() == "1"


def test_a_batch_that_was_cut_short_is_decoded_whole_and_only_what_was_missing_is_given(
    tmp_path: Path, fake: dict[str, Any]
) -> None:
    whole = run(plan(tmp_path, "a", "b", "c", "d", repeats=1), fake)
    (tmp_path / "batches").unlink()
    kept = whole[:5]
    rest = run(plan(tmp_path, "a", "b", "c", "d", repeats=1), fake | {"done": {a.key for a in kept}})
    assert {a.key for a in rest} == {a.key for a in whole[5:]}
    assert len((tmp_path / "batches").read_text().split("\n")[:-1]) == 2
    cut = next(a for a in rest if a.batch == kept[-1].batch and a.arm == kept[-1].arm)
    assert cut.failure is None


def test_later_turns_of_conversations_go_on_under_load(tmp_path: Path, fake: dict[str, Any]) -> None:
    talks = [
        asked
        for name in ("x", "y")
        for asked in (
            Asked("talk", name, name, 3, messages=(Message("user", name),)),
            Asked("talk", f"{name}.2", "", 3, messages=(Message("user", "more"),), after=name),
        )
    ]
    asked = (*talks, Asked("t", "0", "a", 3))
    answers = run(replace(plan(tmp_path, "a", repeats=1), asked=asked, renders=False), fake)
    judged = [a for a in answers if a.probe is None]
    assert {(a.arm, a.prompt) for a in judged} == {
        (arm, one.prompt) for arm in ("plain/n2", "mtp@1/n2") for one in asked
    }
    assert all(a.failure is None for a in answers)
    later = [line for line in (tmp_path / "batches").read_text().splitlines() if "more" in line]
    assert len(later) == 2
    assert all(line.count('"content":"ab"') == 2 for line in later)  # the arm's own answers stand in both
