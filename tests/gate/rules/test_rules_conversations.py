"""The threat: answers of different contexts compared as answers to one prompt, or turns that nobody judged passed."""

from __future__ import annotations

import msgspec
import pytest

from tasks.types import Case, Prompt


@pytest.fixture
def talk(scene):
    """Four conversations of two turns: turn 1 judged by `one`, turn 2 by `two` and `three`."""
    task = scene.tasks.pop("csv")
    scene.answers_by.clear()
    scene.grades_by.clear()
    ids = ("w1", "w2", "w3", "w4")
    prompts = tuple(
        p for i in ids for p in (Prompt(id=i, text=i), Prompt(id=f"{i}.2", text="and?", turn=2, after=i))
    )
    cases = (Case(name="one", turn=1), Case(name="two"), Case(name="three"))
    scene.tasks["csv"] = msgspec.structs.replace(task, prompts=prompts, cases=cases)
    for arm in scene.arms.values():
        scene._fill(arm, "csv")
    for (arm, name, prompt), grade in scene.grades_by.items():
        mine = {c.name for c in scene.tasks["csv"].of_turn(2 if "." in prompt else 1).cases}
        kept = tuple(c for c in grade.cases if c.case in mine)
        scene.grades_by[arm, name, prompt] = msgspec.structs.replace(grade, cases=kept)
    return scene


def outcome(scene, prompt, case, value):
    grade = scene.grades_by["mtp@1", "csv", prompt]
    cases = tuple(msgspec.structs.replace(c, outcome=value) if c.case == case else c for c in grade.cases)
    scene.grades_by["mtp@1", "csv", prompt] = msgspec.structs.replace(grade, cases=cases)


def test_turns_are_judged_each_by_its_cases(talk):
    verdict = talk.verdict()
    assert verdict.decision == "serve"
    assert "12 of 12 cases pass" in verdict.tasks[0].sentence
    assert verdict.tasks[0].statistics["against_plain"]["prompts"] == 4, (
        "a conversation is one prompt to statistics"
    )


def test_turns_are_no_more_prompts_than_their_conversations(talk):
    """What a run can see is told by independent prompts; the turns of one conversation are not."""
    assert any("there were fewer (csv 4)" in caveat for caveat in talk.verdict().caveats)


def test_a_later_turn_behind_other_answers_is_judged_by_score_alone(talk):
    talk.diverge("w1")
    talk.diverge("w1.2")
    talk.change("w1.2", prompt_sha256="csv/w1.2 behind another answer")
    found = talk.found("other-context")
    assert found.severity == "note" and "1 later turns of 1 conversations" in found.message
    diverged = [f.prompt for f in talk.verdict().findings if f.code == "diverged"]
    assert diverged == ["w1"], "tokens are compared where the context was the same only"
    assert talk.verdict().decision == "serve"
    assert any("had another context" in caveat for caveat in talk.verdict().caveats)


def test_a_case_lost_in_a_later_turn_blocks_whatever_its_context(talk):
    talk.diverge("w1.2")
    talk.change("w1.2", prompt_sha256="csv/w1.2 behind another answer")
    outcome(talk, "w1.2", "two", "fail")
    assert talk.verdict().reasons == ("case-lost",)


def test_an_arm_that_answers_its_first_turn_otherwise_is_unrepeatable_once(talk):
    talk.diverge("w1")
    talk.change("w1", repeat=1, text="another")
    talk.change("w1.2", repeat=1, text="another too", prompt_sha256="csv/w1.2 elsewhere")
    found = [f for f in talk.verdict().findings if f.code == "spec-unrepeatable"]
    assert [f.prompt for f in found] == ["w1"]


def test_a_turn_without_a_grade_is_not_passed(talk):
    del talk.grades_by["mtp@1", "csv", "w3.2"]
    assert talk.verdict().decision == "inconclusive"
    assert "case-not-judged" in talk.verdict().reasons


def test_a_grade_of_the_other_turn_does_not_stand_for_this_one(talk):
    other = talk.grades_by["mtp@1", "csv", "w3"]
    talk.grades_by["mtp@1", "csv", "w3.2"] = msgspec.structs.replace(other, prompt="w3.2")
    assert "case-not-judged" in talk.verdict().reasons


def test_a_fault_in_a_turn_that_is_not_judged_blocks(talk):
    task = talk.tasks["csv"]
    talk.tasks["csv"] = msgspec.structs.replace(task, cases=tuple(c for c in task.cases if c.name != "one"))
    for key, grade in talk.grades_by.items():
        if "." not in key[2]:
            talk.grades_by[key] = msgspec.structs.replace(grade, cases=())
    assert talk.verdict().decision == "serve"
    answer = talk.answers_by["mtp@1", "csv", "w1", 0]
    talk.change("w1", ids=(*answer.ids, 65, 66), repeat=0)
    assert talk.verdict().reasons[0] == "post-stop-leak"
