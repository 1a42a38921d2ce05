"""Threat: a gate that waves a fault through, names it wrongly, or cries wolf over a sound head. The corpus is real
answers of the sample (`record.py`), as they are and with one fault put in; `python -m tests.faults.table` prints it."""

from __future__ import annotations

import pytest

import gate.verdict
from gate.policy import load_policy
from gate.rules import registry
from tasks.folder import builtin_tasks
from tests.faults.recorded import Recorded
from tests.faults.situation import verdict
from tests.faults.table import MAX_FALSE_BLOCKS, Judged, judge_all, rate


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return judge_all(Recorded())


def test_there_are_enough_situations_of_many_kinds(judged: list[Judged]) -> None:
    faults = [j.situation for j in judged if not j.situation.clean]
    assert len(faults) >= 60 and len({f.fault for f in faults}) >= 30
    assert sum(j.situation.clean for j in judged) >= 200
    assert len({j.situation.name for j in judged}) == len(judged)


@pytest.mark.parametrize("half", ["a", "b"])
def test_every_fault_is_blocked_by_a_right_reason(judged: list[Judged], half: str) -> None:
    faults = [j for j in judged if not j.situation.clean and j.situation.half == half]
    assert len(faults) >= 30
    assert [(j.situation.name, j.decision, j.reasons) for j in faults if not j.right] == []


@pytest.mark.parametrize("half", ["a", "b"])
def test_clean_situations_are_served(judged: list[Judged], half: str) -> None:
    clean = [j for j in judged if j.situation.clean and j.situation.half == half]
    blocked = [(j.situation.name, j.decision, j.reasons) for j in clean if j.blocked]
    assert len(blocked) <= MAX_FALSE_BLOCKS * len(clean), f"{rate(len(blocked), len(clean))}: {blocked}"


def test_a_rule_left_out_is_missed(judged: list[Judged], monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus can fail: without its rule a fault is served."""
    leak = next(j.situation for j in judged if j.situation.fault == "leak_after_stop")
    without = tuple(rule for rule in registry.TASK_RULES if rule.code != "post-stop-leak")
    monkeypatch.setattr(gate.verdict, "TASK_RULES", without)
    found = verdict(leak.run, {t.name: t for t in builtin_tasks()}, Recorded().tokens, load_policy(None))
    assert "post-stop-leak" not in found.reasons
