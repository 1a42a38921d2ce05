"""The threat: a pass by absence. Plain that isn't repeatable or is garbage, a sandbox that failed, answers or grades
that aren't there: identity and scores say nothing then."""

from __future__ import annotations

import msgspec
import pytest

from evals.types import CaseGrade, Failure, RunEnd, SandboxReport

LOOP = "so it is and " * 30


def only(scene, code, severity="unreadable"):
    """The scene is inconclusive because of `code`; its finding."""
    verdict = scene.verdict()
    assert verdict.decision == ("inconclusive" if severity == "unreadable" else "do_not_serve")
    assert code in verdict.reasons
    return scene.found(code)


def test_plain_that_differs_from_itself(scene):
    """A16: with prefix caching on, plain's repeats differ; the message names the suspect."""
    scene.arms["plain"] = msgspec.structs.replace(
        scene.arms["plain"], scheduler={"enable_prefix_caching": True}
    )
    scene.change("w2", arm="plain", repeat=1, text="def parse(text):\n    return text.split(',')\n")
    found = only(scene, "plain-unrepeatable")
    assert found.arm == "plain"
    assert "prefix caching is on" in found.message
    assert found.evidence["token_index"] == 22


def test_plain_that_differs_from_itself_when_asked_again_later(scene):
    scene.probe("w1", "state", arm="plain", ids=(65, 2), text="A")
    assert "no difference can be put down" in only(scene, "plain-unrepeatable").message


def test_plain_decoded_once_only(scene):
    scene.repeats["plain"] = 1
    scene.answers_by = {k: a for k, a in scene.answers_by.items() if k[0] != "plain" or k[3] == 0}
    only(scene, "plain-not-repeated")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"ids": (0,) * 300, "text": "!" * 300, "finish": "length"}, "same token 300 times"),
        ({"ids": (*(33,) * 60, 2), "text": "!" * 60, "finish": "stop"}, "same token 61 times"),
        ({"ids": (2,), "text": ""}, "is empty"),
        ({"text": LOOP, "ids": tuple(map(ord, LOOP)), "finish": "length"}, "runs in a loop"),
    ],
)
def test_plain_that_is_garbage_though_the_arm_equals_it(scene, answer, why):
    for arm in scene.arms:
        scene.change("w3", arm=arm, **answer)
    found = scene.verdict()
    assert found.decision == "inconclusive"
    assert "degenerate-plain" in found.reasons
    assert why in next(f for f in found.findings if f.code == "degenerate-plain").message


def test_a_text_of_repeated_words_that_is_no_exact_loop_is_garbage_too(scene):
    text = "".join(("the same old words " * 6) + str(i) for i in range(4))
    for arm in scene.arms:
        scene.change("w3", arm=arm, text=text, finish="length")
    assert "repeats itself" in only(scene, "degenerate-plain").message


def test_one_degenerate_prompt_of_many_is_a_note(scene, make_policy):
    for arm in scene.arms:
        scene.change("w3", arm=arm, ids=(2,), text="", accepted=0, drafted=0)
    policy = make_policy("[thresholds]\nmax_degenerate_plain_share = 0.25")
    assert scene.codes(policy) == {"degenerate-plain": "note"}


def test_an_engine_that_dies_only_when_speculating_is_a_fault(scene):
    failure = Failure(kind="crash", message="core dumped", signal=11)
    scene.change("w2", ids=(), text="", steps=(), failure=failure)
    found = only(scene, "engine-crash", "block")
    assert (
        "crashed while decoding (signal 11), 'core dumped', on 1 of 4 prompts; plain answers there"
        in found.message
    )
    assert found.evidence["signal"] == 11


def test_an_engine_that_hangs_only_when_speculating_is_a_fault(scene):
    scene.change("w2", ids=(), text="", failure=Failure(kind="hang", message="no token for 60 s"))
    assert "hung" in only(scene, "engine-crash", "block").message


def test_an_engine_that_dies_in_plain_says_nothing_of_speculation(scene):
    for arm in scene.arms:
        scene.change("w2", arm=arm, ids=(), text="", failure=Failure(kind="crash", message="", signal=6))
    assert scene.verdict().decision == "inconclusive"
    assert scene.found("engine-crash").arm == "plain"


@pytest.mark.parametrize("kind", ["start", "state"])
def test_an_engine_that_dies_at_a_fresh_start_of_plain_too_says_nothing_of_speculation(scene, kind):
    """openvino#38235"""
    failure = Failure(kind="crash", message="", signal=6, stage="build")
    scene.probe("w1", kind, ids=(), text="", failure=failure)
    assert scene.verdict().reasons == ("engine-crash",)
    assert scene.verdict().decision == "do_not_serve"
    scene.probe("w1", kind, arm="plain", ids=(), text="", failure=failure)
    assert scene.verdict().decision == "inconclusive"


def test_an_engine_that_refuses_settings_is_no_fault_of_the_head(scene):
    failure = Failure(kind="refused", message="bf16 with f32 KV", stage="build")
    scene.change_all(ids=(), text="", failure=failure)
    assert "while being built" in only(scene, "engine-crash").message


def test_answers_that_are_not_there(scene):
    del scene.answers_by["mtp@1", "csv", "w3", 1]
    found = only(scene, "answers-missing")
    assert found.message.endswith("1 of 8 planned answers are missing, first w3 repeat 1")


def test_a_sandbox_that_failed_its_self_test(scene):
    scene.sandbox = SandboxReport(
        name="bubblewrap", trusted=False, failed_probes=("net",), remedy="allow user namespaces"
    )
    scene.diverge("w1")
    scene.grade("w1", {"one": "fail"})  # graded in a sandbox that can't be trusted: doesn't count
    found = only(scene, "sandbox-not-trusted")
    assert "(net failed)" in found.message
    assert "allow user namespaces" in found.message


@pytest.mark.parametrize(
    "report",
    [
        None,
        SandboxReport(name="none", trusted=True),
        SandboxReport("bubblewrap", True, failed_probes=("net",)),
    ],
)
def test_no_record_of_a_sandbox_or_one_that_contradicts_itself(scene, report):
    scene.sandbox = report
    only(scene, "sandbox-not-trusted")


def test_constraints_need_no_sandbox(make_scene):
    scene = make_scene(judge="constraints", kind="prose")
    scene.sandbox = None
    assert scene.verdict().decision == "serve"


def test_an_answer_without_a_grade(scene):
    del scene.grades_by["plain", "csv", "w1"]
    assert "no grade is on record" in only(scene, "case-not-judged").message


def test_a_sandbox_outage_is_not_a_pass(scene):
    """D05: with the sandbox down the list of cases is empty, and "all of them passed"."""
    grade = scene.grades_by["mtp@1", "csv", "w1"]
    scene.grades_by["mtp@1", "csv", "w1"] = msgspec.structs.replace(grade, cases=())
    assert "0 of 3 cases" in only(scene, "case-not-judged").message


def test_a_case_that_the_machine_decided(scene):
    cases = (
        CaseGrade("one", "pass"),
        CaseGrade("two", "infra", observed="no space"),
        CaseGrade("three", "pass"),
    )
    grade = scene.grades_by["mtp@1", "csv", "w1"]
    scene.grades_by["mtp@1", "csv", "w1"] = msgspec.structs.replace(grade, cases=cases)
    assert "'no space'" in only(scene, "case-not-judged").message


def test_one_answer_with_two_outcomes_blames_the_harness_not_the_head(scene):
    scene.grade("w1", {"two": "timeout"})
    found = only(scene, "harness-unrepeatable")
    assert found.evidence["case"] == "two"
    assert "new-crash" not in scene.codes()


def test_a_run_cut_short(scene):
    scene.end = RunEnd(
        complete=False, reason="interrupted", model_digest_after="d" * 64, wall_s=1, engine_s=1
    )
    assert "interrupted" in only(scene, "run-incomplete").message
    scene.end = None
    assert "no end record" in only(scene, "run-incomplete").message


def test_a_model_whose_digest_was_not_taken_again(scene):
    scene.end = RunEnd(complete=True, reason="", model_digest_after=None, wall_s=1, engine_s=1)
    assert "not taken after" in only(scene, "model-changed").message


def test_no_case_judged_in_both_arms(scene):
    scene.grades_by.clear()
    assert "nothing-judged" in scene.verdict().reasons


def test_an_arm_that_differs_from_itself(scene):
    scene.change("w2", repeat=1, text="def parse(text):\n    return text.split(',')\n")
    found = only(scene, "spec-unrepeatable")
    assert "in repeat 1, first at token 22" in found.message


def test_an_arm_that_differs_from_itself_when_started_afresh(scene):
    scene.probe("w1", "start", session=3, ids=(65, 2), text="A")
    assert "in start 3" in only(scene, "spec-unrepeatable").message


def test_plain_that_passes_nothing_has_nothing_to_lose(scene):
    for arm in scene.arms:
        for prompt in ("w1", "w2", "w3", "w4"):
            scene.grade(prompt, {"one": "fail", "two": "fail", "three": "fail"}, arm=arm)
    assert "0 of 12" in only(scene, "plain-floor").message


@pytest.mark.parametrize(("passing", "found"), [(2, True), (3, False)])
def test_plain_that_passes_next_to_nothing_has_too_little_to_lose(scene, passing, found):
    """2 of 12 cases are under a fifth; with 3 the task is small, and can be judged."""
    names = ("one", "two", "three")
    left = passing
    for prompt in ("w1", "w2", "w3", "w4"):
        outcomes = {name: "pass" if i < min(left, 3) else "fail" for i, name in enumerate(names)}
        left -= sum(o == "pass" for o in outcomes.values())
        for arm in scene.arms:
            scene.grade(prompt, outcomes, arm=arm)
    codes = [f.code for f in scene.verdict().findings]
    assert ("plain-floor" in codes) is found
    if found:
        assert (
            "2 of 12 cases, so only 1 of 4 prompts have anything to lose"
            in only(scene, "plain-floor").message
        )
        assert scene.verdict().decision == "inconclusive"


def test_a_hard_task_with_prompts_enough_is_no_floor(scene, make_policy, monkeypatch):
    monkeypatch.setattr("gate.rules.plain_floor.prompts_to_see", lambda: 4)
    for prompt in ("w1", "w2", "w3", "w4"):
        for arm in scene.arms:
            scene.grade(prompt, {"one": "pass", "two": "fail", "three": "fail"}, arm=arm)
    policy = make_policy("[thresholds]\nmin_plain_score = 0.5")
    assert "plain-floor" not in [f.code for f in scene.verdict(policy).findings]
