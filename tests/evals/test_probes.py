"""The threat: an answer that depends on the requests before it, or on the start of its engine, is asked only once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evals.arms import build_arms
from evals.decode import Asked, Decoding, Plan
from evals.digest import ModelDigests
from evals.types import Answer


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(
        model=tmp_path,
        arms=build_arms(ModelDigests(whole="w", target="t", head="h", files={})),
        repeats={},
        asked=(Asked("t", "a", "hello", 3), Asked("t", "b", "hello", 3)),
        stop_ids=frozenset({2}),
        state_probe=True,
        fresh_starts=2,
    )


@pytest.fixture
def fake(repo: Path) -> dict[str, Any]:
    return {"command": (sys.executable, "-P", str(repo / "tests" / "fixtures" / "fake_worker.py"))}


def run(plan: Plan, options: dict[str, Any]) -> list[Answer]:
    with Decoding(plan, **options) as decoding:
        assert decoding.planned == 4 + 4 + 4 - len(options.get("done", ()))
        return list(decoding)


@pytest.mark.parametrize("sequential", [False, True])
def test_the_first_prompt_is_asked_again_after_the_others_and_in_new_processes(
    sequential: bool, plan: Plan, tmp_path: Path, fake: dict[str, Any]
) -> None:
    answers = run(plan, fake | {"sequential": sequential})
    mtp = [(a.prompt, a.session, a.probe, a.order) for a in answers if a.arm == "mtp@1"]
    assert mtp == [
        ("a", 0, None, 0),
        ("b", 0, None, 1),
        ("a", 0, "state", 2),
        ("a", 1, "state", 0),
        ("a", 2, "start", 0),
        ("a", 3, "start", 0),
    ]
    assert len({a.key for a in answers}) == len(answers)
    assert (tmp_path / "starts-mtp").read_text() == "4"
    assert (tmp_path / "starts-plain").read_text() == "4"


def test_nothing_is_asked_again_unless_planned(plan: Plan, fake: dict[str, Any]) -> None:
    with Decoding(replace(plan, state_probe=False, fresh_starts=0), **fake) as decoding:
        assert [a.probe for a in decoding] == [None] * 4


def test_a_resumed_run_asks_only_what_is_missing(plan: Plan, tmp_path: Path, fake: dict[str, Any]) -> None:
    whole = run(plan, fake)
    rest = run(plan, fake | {"done": {a.key for a in whole if a.session < 3}})
    assert [(a.arm, a.session, a.probe) for a in rest] == [("plain", 3, "start"), ("mtp@1", 3, "start")]
    assert (tmp_path / "starts-mtp").read_text() == "5"


def test_a_start_that_crashes_is_recorded(plan: Plan, fake: dict[str, Any]) -> None:
    crashing = replace(plan, asked=(Asked("t", "a", "segv", 3),), state_probe=False, fresh_starts=1)
    with Decoding(crashing, **fake) as decoding:
        answers = list(decoding)
    assert [(a.session, a.failure.signal if a.failure else None) for a in answers if a.arm == "plain"] == [
        (0, 11),
        (2, 11),
    ]
