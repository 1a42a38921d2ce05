"""The threat: a head gated on short prompts and served on long ones, or a depth called safe beyond one that isn't."""

from __future__ import annotations

import pytest


def deepen(scene, *depths):
    for depth in depths:
        scene.add_task(f"csv@{depth}", prompts=("w1", "w2", "w3", "w4"))


def lose(scene, task):
    scene.grade("w2", {"one": "fail"}, task=task)
    scene.diverge("w2", task=task)


def test_a_depth_that_fails_limits_the_task_to_the_one_before(scene):
    deepen(scene, 512, 4096, 16384)
    lose(scene, "csv@16384")
    verdict = scene.verdict()
    assert (verdict.decision, verdict.reasons) == ("serve_with_limits", ("depth-limit",))
    assert verdict.tasks[0].decision == "serve_with_limits"
    assert verdict.tasks[0].limits == {"depth": 4096}
    assert "csv: depth 4096" in verdict.sentence
    assert (
        "holds up to 4,096 tokens of context; at 16,384 it must not be served (case-lost)"
        in verdict.tasks[0].sentence
    )
    assert [t.requirement for t in verdict.tasks] == ["no_worse", "advisory", "advisory", "advisory"]


def test_a_later_depth_that_passes_makes_nothing_safe(scene):
    deepen(scene, 512, 4096, 16384)
    lose(scene, "csv@512")
    verdict = scene.verdict()
    assert verdict.tasks[0].limits == {"depth": 40}, "the longest prompt of the task itself"
    assert verdict.decision == "serve_with_limits"


def test_a_depth_that_cannot_be_judged_is_not_safe(scene):
    """A sample trained on short contexts passes nothing at depth: plain neither."""
    deepen(scene, 512)
    for arm in ("plain", "mtp@1"):
        for prompt in ("w1", "w2", "w3", "w4"):
            scene.grade(prompt, dict.fromkeys(("one", "two", "three"), "fail"), arm=arm, task="csv@512")
    verdict = scene.verdict()
    assert verdict.decision == "serve_with_limits"
    assert "it can't be judged (plain-floor)" in verdict.tasks[0].sentence


def test_depths_that_all_hold_limit_nothing(scene):
    deepen(scene, 512, 4096)
    verdict = scene.verdict()
    assert (verdict.decision, verdict.tasks[0].limits) == ("serve", {})


def test_a_task_that_fails_by_itself_is_not_saved_by_its_depths(scene):
    deepen(scene, 512)
    lose(scene, "csv")
    verdict = scene.verdict()
    assert (verdict.decision, verdict.tasks[0].limits) == ("do_not_serve", {})


def test_slower_at_a_depth_limits_to_the_last_that_is_worth_it(scene):
    deepen(scene, 512, 4096)
    scene.change_all(task="csv@4096", decode_s=6.0)
    verdict = scene.verdict()
    assert verdict.reasons == ("slower-at-depth",)
    assert verdict.tasks[0].limits == {"depth": 512}
    assert verdict.worth_it is True, "up to the limit it is worth it"


def test_slower_at_a_depth_by_no_more_than_chance_limits_nothing(scene):
    deepen(scene, 512)
    scene.change_all(task="csv@512", decode_s=2.1)
    scene.change("w1", task="csv@512", decode_s=1.9)
    assert (scene.verdict().decision, scene.verdict().tasks[0].limits) == ("serve", {})


def test_slower_everywhere_is_no_depth(scene):
    deepen(scene, 512)
    for task in ("csv", "csv@512"):
        scene.change_all(task=task, decode_s=6.0)
    assert (scene.verdict().decision, scene.verdict().worth_it) == ("serve", False)


def test_what_is_seen_by_depth_is_on_record(scene):
    deepen(scene, 512)
    lose(scene, "csv@512")
    found = next(f for f in scene.verdict().findings if f.code == "depth-limit")
    assert [(d["depth"], d["decision"], d["passed"], d["judged"]) for d in found.evidence["by_depth"]] == [
        (40, "serve", 12, 12),
        (512, "do_not_serve", 11, 12),
    ]
    assert found.evidence["by_depth"][1]["acceptance"] == pytest.approx(90 / 110)


def test_a_depth_without_its_task_counts_for_itself(scene):
    scene.add_task("alone@512", prompts=("w1", "w2", "w3", "w4"))
    lose(scene, "alone@512")
    assert scene.verdict().decision == "do_not_serve"


def test_the_requirement_of_a_task_holds_at_every_depth(scene, make_policy):
    """csv must be identical: a divergence at depth breaks that, though no case is lost."""
    deepen(scene, 512)
    scene.diverge("w1", task="csv@512")
    verdict = scene.verdict(make_policy('[requirements.tasks]\ncsv = "identical"'))
    assert "not-identical" in verdict.tasks[1].reasons


def test_the_policy_may_make_a_depth_limit_block_or_nothing(scene, make_policy):
    deepen(scene, 512)
    lose(scene, "csv@512")
    blocked = scene.verdict(make_policy('[severities]\n"depth-limit" = "block"'))
    assert (blocked.decision, blocked.tasks[0].limits) == ("do_not_serve", {})
    assert scene.verdict(make_policy('[severities]\n"depth-limit" = "note"')).decision == "serve"
