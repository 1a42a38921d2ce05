"""The threat: a requirement that doesn't mean what the policy says. Every requirement against every outcome, with
a task beside it that is required and clean, so that the whole shows what blocks it."""

from __future__ import annotations

import pytest

PROMPTS = tuple(f"p{i}" for i in range(30))


def near_tie(scene, prompt="p1"):
    scene.diverge(prompt)
    scene.margin(prompt)


def lost(scene, prompt="p1"):
    near_tie(scene, prompt)
    scene.grade(prompt, {"two": "fail"})


def swap(scene):
    lost(scene)
    near_tie(scene, "p2")
    scene.grade("p2", {"one": "fail"}, arm="plain")


def crash(scene):
    near_tie(scene)
    scene.grade("p1", {"two": "fail"}, arm="plain")
    scene.grade("p1", {"two": "crash"})


def many_lost(scene):
    for prompt in PROMPTS[:10]:
        lost(scene, prompt)


def leak(scene):
    scene.change("p1", ids=(*scene.answers_by["plain", "csv", "p1", 0].ids, 65))


def plain_differs(scene):
    scene.change("p1", arm="plain", repeat=1, text="something else")


OUTCOMES = {
    # what happened: identical, no_worse, non_inferior; each: decision and its reasons
    None: ("serve", "serve", "serve"),
    near_tie: ("not-identical", "serve", "serve"),
    lost: ("not-identical case-lost", "case-lost", "serve"),
    swap: ("not-identical", "serve", "serve"),
    crash: ("not-identical new-crash", "new-crash", "new-crash"),
    many_lost: ("not-identical case-lost", "case-lost", "inferior"),
    leak: ("post-stop-leak not-identical", "post-stop-leak", "post-stop-leak"),
    plain_differs: ("plain-unrepeatable",) * 3,
}


@pytest.mark.parametrize("requirement", ["identical", "no_worse", "non_inferior", "advisory"])
@pytest.mark.parametrize("happens", OUTCOMES, ids=lambda f: f.__name__ if f else "clean")
def test_a_requirement_means_what_it_says(make_scene, make_policy, happens, requirement):
    scene = make_scene()
    scene.add_task("csv", prompts=PROMPTS)
    scene.add_task("required")
    if happens is not None:
        happens(scene)
    policy = make_policy(
        f'[requirements.tasks]\ncsv = "{requirement}"\n[thresholds]\nnon_inferiority_margin = 0.2\n'
    )
    verdict = scene.verdict(policy)
    task = next(t for t in verdict.tasks if t.task == "csv")
    assert task.requirement == requirement
    said = dict(zip(("identical", "no_worse", "non_inferior"), OUTCOMES[happens], strict=True))
    expected = said["no_worse" if requirement == "advisory" else requirement]
    assert ("serve" if task.decision == "serve" else " ".join(task.reasons)) == expected
    assert verdict.decision == ("serve" if requirement == "advisory" else task.decision)
    assert (task.decision == "inconclusive") == (happens is plain_differs)
