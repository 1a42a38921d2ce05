"""The threat: a loss called by chance, one waved through for want of prompts, and many tests of which one "finds"
something."""

from __future__ import annotations

import pytest

NON_INFERIOR = '[requirements]\ndefault = "non_inferior"\n'


@pytest.fixture
def wide(make_scene):
    """A scene with one task of n prompts (three cases each), in place of the small one."""

    def make(n, names=("big",)):
        scene = make_scene()
        for name in names:
            scene.add_task(name, prompts=[f"p{i}" for i in range(n)])
        del scene.tasks["csv"]
        return scene

    return make


def lose(scene, prompts, task="big", arm="mtp@1", cases=("one", "two", "three")):
    for prompt in prompts:
        if arm == "mtp@1":
            scene.diverge(prompt, task=task)
        scene.grade(prompt, dict.fromkeys(cases, "fail"), task=task, arm=arm)


def test_enough_prompts_without_a_loss_are_non_inferior(wide, make_policy):
    policy = make_policy(NON_INFERIOR + "[thresholds]\nnon_inferiority_margin = 0.05")
    verdict = wide(60).verdict(policy)
    assert verdict.decision == "serve"
    assert verdict.tasks[0].statistics["judgement"]["outcome"] == "non_inferior"


def test_too_few_prompts_are_inconclusive_and_say_how_many_more(wide, make_policy):
    policy = make_policy(NON_INFERIOR + "[thresholds]\nnon_inferiority_margin = 0.05")
    scene = wide(20)
    verdict = scene.verdict(policy)
    assert (verdict.decision, verdict.reasons) == ("inconclusive", ("too-few-pairs",))
    found = scene.found("too-few-pairs", policy)
    assert found.evidence["prompts_needed"] == 59  # (1 - 0.05) ** 59 < 0.05
    assert "about 39 more prompts like these would settle it" in found.message
    assert "--variants" in verdict.what_to_do
    assert wide(59).verdict(policy).decision == "serve"


def test_a_loss_beyond_chance_is_inferior(wide, make_policy):
    scene = wide(40)
    lose(scene, [f"p{i}" for i in range(10)])
    verdict = scene.verdict(make_policy(NON_INFERIOR))
    assert verdict.reasons == ("inferior",)
    message = scene.found("inferior", make_policy(NON_INFERIOR)).message
    assert "lower by 25.0 points (30 cases lost, 0 gained, on 10 of 40 prompts)" in message


def test_single_lost_cases_are_notes_where_statistics_decide(wide, make_policy):
    policy = make_policy(NON_INFERIOR + "[thresholds]\nnon_inferiority_margin = 0.1")
    scene = wide(90)
    lose(scene, ["p1"], cases=("one",))
    assert scene.codes(policy)["case-lost"] == "note"
    assert scene.verdict(policy).decision == "serve"
    assert scene.verdict().decision == "do_not_serve"  # by no_worse


def test_several_tests_are_corrected_for_their_number(wide, make_policy):
    """60 prompts say non-inferior for one task; of ten tasks at once each needs more."""
    policy = make_policy(NON_INFERIOR + "[thresholds]\nnon_inferiority_margin = 0.05")
    scene = wide(60, names=[f"t{i}" for i in range(10)])
    verdict = scene.verdict(policy)
    assert verdict.decision == "inconclusive"
    first = verdict.tasks[0].statistics
    assert first["judgement"]["inferior_p"] == pytest.approx(10 * first["against_plain"]["inferior_p"])


def test_heads_are_tests_too(wide, make_policy):
    policy = make_policy(NON_INFERIOR + "[thresholds]\nnon_inferiority_margin = 0.05")
    scene = wide(60)
    for k in (2, 3, 4):
        scene.add_arm(f"mtp@{k}", "mtp", k, repeats=2)
    assert scene.verdict(policy).decision == "inconclusive"


def test_a_loss_against_the_control_beyond_chance_blocks(wide):
    scene = wide(12)
    scene.add_arm("control@1", "control", 1, control_seed=1)
    lose(scene, [f"p{i}" for i in range(8)])
    verdict = scene.verdict()
    assert "score-worse-than-control" in verdict.reasons
    assert verdict.tasks[0].statistics["control"] == "control@1"


def test_a_loss_that_the_control_has_too_is_not_put_down_to_the_head(wide):
    scene = wide(12)
    scene.add_arm("control@1", "control", 1, control_seed=1)
    lose(scene, [f"p{i}" for i in range(8)])
    lose(scene, [f"p{i}" for i in range(8)], arm="control@1")
    assert scene.verdict().reasons == ("case-lost",)


def test_the_controls_score_stands_beside_the_others(wide):
    scene = wide(4)
    scene.add_arm("control@1", "control", 1, control_seed=1)
    lose(scene, ["p0"], arm="control@1", cases=("one",))
    assert "12 of 12 cases pass (12 with plain, 11 with control@1)" in scene.verdict().tasks[0].sentence


def test_a_grade_from_a_sandbox_that_is_not_trusted_is_no_loss(wide, make_policy):
    scene = wide(40)
    lose(scene, [f"p{i}" for i in range(20)])
    scene.sandbox = None
    assert scene.verdict(make_policy(NON_INFERIOR)).decision == "inconclusive"


def test_how_many_prompts_would_be_needed_is_said(scene, wide, make_policy):
    (power,) = [c for c in scene.verdict().caveats if "nine times in ten" in c]
    assert "from 22 prompts a task on (no_worse)" in power  # 1 - 0.9 ** 22 > 0.9
    assert "csv 4" in power
    assert not [c for c in wide(22).verdict().caveats if "nine times in ten" in c]
    policy = make_policy(NON_INFERIOR)
    (power,) = [c for c in wide(22).verdict(policy).caveats if "nine times in ten" in c]
    assert "(non_inferior)" in power


def test_speed_has_an_interval_and_a_step_cost(wide):
    scene = wide(8)
    for i in range(8):
        for arm, steps in (("plain", (1,) * 200), ("mtp@1", (1, *(2,) * 100))):
            seconds = 2.0 if arm == "plain" else 1.4 + i / 10
            scene.change(f"p{i}", task="big", arm=arm, steps=steps, decode_s=seconds)
    speed = scene.verdict().tasks[0].statistics["speed"]
    assert speed["low"] <= speed["ratio"] <= speed["high"]
    assert speed["step_cost"] == pytest.approx(1.75 / 2.0 * 199 / 100)


def test_slower_within_the_interval_is_not_called_slower(wide):
    scene = wide(8)
    for i in range(8):
        scene.change(f"p{i}", task="big", decode_s=2.05 if i < 5 else 1.0)
    assert "slower-than-plain" not in scene.codes()
    for i in range(8):
        scene.change(f"p{i}", task="big", decode_s=2.5 + i / 100)
    assert "0.79 times plain's rate (median over 8 prompts, 0." in scene.found("slower-than-plain").message
