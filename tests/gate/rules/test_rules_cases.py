"""The threat: a lost case that nobody names, a swap that looks like no change, a crash where there was only a wrong
result; and blaming the head for what the verify width does."""

from __future__ import annotations

import msgspec
import pytest

from evals.types import CaseGrade


def test_a_lost_case_blocks_and_is_named(scene):
    scene.diverge("w2")
    scene.grade("w2", {"two": "fail"})
    verdict = scene.verdict()
    assert (verdict.decision, verdict.reasons) == ("do_not_serve", ("case-lost",))
    assert verdict.tasks[0].lost == (("w2", "two"),)
    assert "csv/w2, mtp@1: case two is lost: plain pass, the arm fail" in verdict.tasks[0].sentence


@pytest.mark.parametrize(
    ("margin", "says"),
    [
        (
            {},
            "a near-tie: rank 2 in plain's logits, 0.05 nats below the best, limit 0.2 (width noise p99 0.1)",
        ),
        ({"gap": 7.0, "rank": 9}, "not a near-tie: rank 9 in plain's logits, 7 nats below the best"),
        ({"gap": 0.3, "reproduced": False}, "its margin says nothing: rank 2"),
        (None, "its margin isn't known"),
    ],
)
@pytest.mark.parametrize("code", ["case-lost", "new-crash", "case-swapped"])
def test_what_made_the_answer_another_one_is_told(scene, code, margin, says):
    scene.diverge("w2")
    scene.grade("w2", {"two": "crash" if code == "new-crash" else "fail"})
    if code == "case-swapped":
        scene.diverge("w3")
        scene.grade("w3", {"one": "fail"}, arm="plain")
    if margin is not None:
        scene.margin("w2", **margin)
    found = scene.found(code)
    assert f"the answer parts from plain at token 40 ('w' where plain has \"'\"), {says}" in found.message
    assert found.evidence["token_index"] == 40
    assert (found.severity == "block") == (code != "case-swapped")


def test_what_was_observed_and_expected_is_told(scene):
    scene.diverge("w2")
    cases = (
        CaseGrade("one", "fail", "['a\\n']", "['a']"),
        CaseGrade("two", "pass"),
        CaseGrade("three", "pass"),
    )
    scene.grades_by["mtp@1", "csv", "w2"] = msgspec.structs.replace(
        scene.grades_by["mtp@1", "csv", "w2"], cases=cases
    )
    assert "expected \"['a']\"" in scene.found("case-lost").message


def test_a_lost_constraint_has_its_own_code(make_scene):
    scene = make_scene(judge="constraints", kind="prose")
    scene.diverge("w2")
    scene.grade("w2", {"two": "fail"})
    assert scene.verdict().reasons == ("constraint-lost",)


def test_a_swap_is_shown_as_one_and_does_not_block(scene):
    scene.diverge("w2")
    scene.grade("w2", {"two": "fail"})
    scene.diverge("w3")
    scene.grade("w3", {"one": "fail"}, arm="plain")
    verdict = scene.verdict()
    assert verdict.decision == "serve"
    assert (verdict.tasks[0].lost, verdict.tasks[0].gained) == ((("w2", "two"),), (("w3", "one"),))
    assert "1 others are gained" in scene.found("case-swapped").message


def test_two_lost_and_one_gained_blocks_for_both(scene):
    for prompt in ("w1", "w2"):
        scene.diverge(prompt)
        scene.grade(prompt, {"two": "fail"})
    scene.diverge("w3")
    scene.grade("w3", {"one": "fail"}, arm="plain")
    assert [f.code for f in scene.verdict().findings].count("case-lost") == 2


def test_a_new_crash_blocks_though_no_case_is_lost(scene):
    scene.diverge("w2")
    scene.grade("w2", {"two": "fail"}, arm="plain")
    scene.grade("w2", {"two": "crash"})
    verdict = scene.verdict()
    assert verdict.reasons == ("new-crash",)
    assert "ends in a crash where plain's did not" in scene.found("new-crash").message


def test_a_crash_that_plain_has_too_is_not_new(scene):
    scene.diverge("w2")
    scene.grade("w2", {"two": "timeout"}, arm="plain")
    scene.grade("w2", {"two": "crash"})
    assert "new-crash" not in scene.codes()


def test_a_loss_that_the_control_arm_does_not_have_is_the_heads(scene):
    scene.add_arm("control@1", "control", 1, control_seed=1)
    scene.diverge("w2")
    scene.grade("w2", {"two": "fail"})
    assert (
        "1 cases are lost and 0 gained against the control head (control@1)"
        in scene.found("score-worse-than-control").message
    )
    scene.grade("w2", {"two": "fail"}, arm="control@1")
    assert "score-worse-than-control" not in scene.codes()


def test_a_void_control_arm_is_not_read(scene):
    scene.add_arm("control@1", "control", 1, control_seed=1)
    scene.change_all(arm="control@1", accepted=60)
    scene.diverge("w2")
    scene.grade("w2", {"two": "fail"})
    assert "score-worse-than-control" not in scene.codes()


def test_cases_are_paired_only_where_both_arms_were_judged(scene):
    del scene.grades_by["mtp@1", "csv", "w1"]
    scene.grade("w1", {"one": "fail"}, arm="plain")
    verdict = scene.verdict()
    assert verdict.tasks[0].gained == ()
    assert verdict.reasons == ("case-not-judged",)
