"""The threat: a waiver that outlives its reason, covers more than it names, or turns missing evidence into a pass."""

from __future__ import annotations

import datetime as dt

import pytest

from evals.types import Failure

WAIVER = '[[waivers]]\ncode = "{code}"\ntask = "{task}"\nreason = "ticket 12"\nexpires = {expires}\n'


@pytest.fixture
def waiver(make_policy):
    def make(code="case-lost", task="csv", expires="2027-01-31", more=""):
        return make_policy(WAIVER.format(code=code, task=task, expires=expires) + more)

    return make


@pytest.fixture
def lost(scene):
    scene.diverge("w2")
    scene.grade("w2", {"two": "fail"})
    return scene


def test_a_waived_finding_does_not_block_and_stays_visible(lost, waiver):
    verdict = lost.verdict(waiver())
    assert verdict.decision == "serve"
    found = lost.found("case-lost", waiver())
    assert found.severity == "waived"
    assert found.evidence["waived_because"] == "ticket 12"
    assert found.evidence["waived_until"] == "2027-01-31"


def test_a_waiver_holds_on_its_last_day_and_not_after(lost, waiver):
    last = dt.datetime(2027, 1, 31, 23, 59, tzinfo=dt.UTC)
    assert lost.verdict(waiver(), now=last).decision == "serve"
    after = lost.verdict(waiver(), now=last + dt.timedelta(minutes=1))
    assert (after.decision, after.reasons) == ("do_not_serve", ("waiver-expired", "case-lost"))


def test_a_waiver_that_nothing_used_fails_the_run(scene, waiver):
    verdict = scene.verdict(waiver())
    assert (verdict.decision, verdict.reasons) == ("do_not_serve", ("waiver-unused",))
    assert "nothing that it covers was found" in scene.found("waiver-unused", waiver()).message


def test_an_expired_waiver_fails_the_run_though_nothing_is_wrong(scene, waiver):
    assert scene.verdict(waiver(expires="2026-11-29")).reasons == ("waiver-expired",)


def test_an_unused_waiver_of_an_unreadable_run_is_a_note(scene, waiver):
    scene.change_all(accepted=0, drafted=0)
    verdict = scene.verdict(waiver())
    assert verdict.decision == "inconclusive"
    assert scene.codes(waiver())["waiver-unused"] == "note"


def test_a_waiver_for_a_task_that_was_not_asked_for_is_a_note(scene, waiver):
    assert scene.verdict(waiver(task="prose")).decision == "serve"
    assert "isn't part of this run" in scene.found("waiver-unused", waiver(task="prose")).message


def test_a_waiver_covers_its_code_only(lost, waiver):
    lost.grade("w2", {"two": "crash"})
    assert lost.verdict(waiver()).reasons == ("new-crash",)


def test_a_waiver_covers_its_arm_only(lost, waiver):
    assert lost.verdict(waiver(more='arm = "mtp@1"\n')).decision == "serve"
    assert lost.verdict(waiver(more='arm = "mtp@3"\n')).reasons == ("waiver-unused", "case-lost")


def test_a_waiver_covers_its_task_only(lost, waiver):
    lost.add_task("prose")
    assert lost.verdict(waiver(task="prose")).reasons == ("waiver-unused", "case-lost")


@pytest.mark.parametrize(
    ("crashed", "decision"), [(1, "serve"), (2, "serve"), (3, "inconclusive"), (4, "inconclusive")]
)
def test_a_waived_crash_leaves_most_prompts_to_judge_or_nothing_is_said(scene, waiver, crashed, decision):
    failure = Failure(kind="crash", message="", signal=11)
    for prompt in ("w1", "w2", "w3", "w4")[:crashed]:
        scene.change(prompt, ids=(), text="", failure=failure)
        del scene.grades_by["mtp@1", "csv", prompt]
    assert scene.verdict(waiver(code="engine-crash")).decision == decision
    assert scene.verdict().decision == "do_not_serve"


def test_a_waiver_cannot_cover_what_is_unreadable(scene, waiver):
    """engine-crash blocks as the arm's and is unreadable as plain's: only the former can be waived."""
    for arm in scene.arms:
        scene.change("w2", arm=arm, ids=(), text="", failure=Failure(kind="crash", message=""))
    assert scene.verdict(waiver(code="engine-crash")).decision == "inconclusive"
