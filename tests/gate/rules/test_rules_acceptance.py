"""The threat: acceptance read where there is none, or believed where it can't be. The first table is B08's."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from evals.types import Answer
from gate.acceptance import by_depth, windows
from gate.evidence import Drafts
from gate.gathering import facts_of

SAYS = {
    "INCONCLUSIVE: speculation not exercised": ("inconclusive", "not-exercised"),
    "DO_NOT_SERVE: dead head": ("do_not_serve", "dead-head"),
    "INCONCLUSIVE: too few drafts": ("inconclusive", "too-few-drafts"),
    "DO_NOT_SERVE: collapse in the last window": ("do_not_serve", "acceptance-collapse"),
    "INCONCLUSIVE: degenerate text, acceptance not credible": ("inconclusive", "acceptance-not-credible"),
    "no objection from acceptance: 0.48 per slot at K=3 still pays": ("serve", None),
    "INCONCLUSIVE: accepted > drafted": ("inconclusive", "counter-fault"),
}
B08 = json.loads((Path(__file__).parents[2] / "fixtures" / "B08.json").read_text())


@pytest.mark.parametrize("case", B08["repro"]["cases"], ids=lambda case: case["name"])
def test_b08(scene, case):
    for prompt in ("w2", "w3", "w4"):
        scene.change(prompt, accepted=None, drafted=None)
    if "K" in case:
        scene.arms["mtp@1"] = msgspec.structs.replace(scene.arms["mtp@1"], k=case["K"])
        for arm, seconds in (("plain", 2.0), ("mtp@1", 2.0 / case["speed_ratio"])):
            scene.change_all(arm=arm, decode_s=seconds)
    if "windows" in case:
        for prompt, (accepted, drafted) in zip(("w1", "w2", "w3", "w4"), case["windows"], strict=True):
            scene.change(prompt, accepted=accepted, drafted=drafted)
    else:
        scene.change("w1", accepted=case["accepted"], drafted=case["drafted"])
    if "repeated_4gram_share" in case:
        for (
            arm
        ) in scene.arms:  # the same text in both, ending by itself, so that plain's floor doesn't speak first
            scene.change_all(arm=arm, text=("one, two, three; " * 40 + "and so on"))
    if case["name"] == "too good":
        scene.change("w1", ids=scene.answers_by["mtp@1", "csv", "w1", 0].ids, accepted=496, drafted=500)
    verdict = scene.verdict()
    decision, code = SAYS[case["expect"]]
    assert verdict.decision == decision
    assert code is None or code in verdict.reasons


def test_no_counters_and_no_step_of_several_tokens_is_not_exercised(scene):
    scene.change_all(accepted=None, drafted=None, steps=(1,) * 20)
    assert scene.verdict().reasons == ("not-exercised",)


def test_no_counters_is_unknown_which_is_not_zero(scene):
    scene.change_all(accepted=None, drafted=None, steps=(1, 2, 2, 1))
    verdict = scene.verdict()
    assert verdict.decision == "serve"
    assert scene.codes() == {"acceptance-unknown": "note"}
    assert verdict.tasks[0].arms[1].acceptance is None


def test_more_accepted_than_the_answer_has_tokens_is_a_counter_fault(scene):
    scene.change_all(ids=(65, 66, 2), accepted=90, drafted=110)
    assert "the answer has 3 tokens" in scene.verdict().tasks[0].sentence


def test_negative_counters_are_a_counter_fault_and_no_dead_head(scene):
    scene.change_all(accepted=-1, drafted=100)
    assert scene.verdict().reasons == ("counter-fault",)


@pytest.mark.parametrize("counters", [(2**62, 90), (-9, 90), (95, 90)])
def test_counters_that_lie_in_one_answer_make_no_collapse_of_the_others(scene, counters):
    scene.change("w1", accepted=counters[0], drafted=counters[1])
    scene.probe("w2", "start", session=2, accepted=90, drafted=110)
    assert scene.verdict().reasons == ("counter-fault",)


def test_high_acceptance_in_a_text_that_does_not_repeat_itself_is_believed(scene):
    scene.change_all(accepted=110, drafted=110)
    assert scene.verdict().decision == "serve"


def test_acceptance_at_the_thresholds(scene, make_policy):
    scene.change_all(accepted=1, drafted=12)  # 4 of 48 in all: below both thresholds, the count speaks
    assert scene.verdict().reasons == ("too-few-drafts",)
    scene.change_all(accepted=1, drafted=13)  # 4 of 52: 7.7 %
    assert scene.verdict().reasons == ("dead-head",)
    lower = make_policy("[thresholds]\ndead_acceptance = 0.05")
    assert scene.verdict(lower).decision == "serve"


def test_a_collapse_by_depth_is_seen_though_every_answer_begins_well(scene):
    """Each answer accepts all of its first 60 drafts and none of its last 60 (vllm-ascend#10495)."""
    steps = (1, *(2,) * 60, *(1,) * 60)
    text = "".join(chr(0x4E00 + i) for i in range(180))
    for arm in scene.arms:
        scene.change_all(arm=arm, text=text)
    scene.change_all(accepted=60, drafted=120, steps=steps)
    found = scene.found("acceptance-collapse")
    assert "by depth" in found.message
    assert found.severity == "block"


def test_a_collapse_is_seen_though_most_windows_are_dead(scene):
    """At K = 3 each answer accepts all of its first 60 tokens (45 drafts) and none after them (360 drafts)."""
    scene.arms["mtp@1"] = msgspec.structs.replace(scene.arms["mtp@1"], k=3)
    text = "".join(chr(0x4E00 + i) for i in range(180))
    for arm in scene.arms:
        scene.change_all(arm=arm, text=text)
    scene.change_all(accepted=45, drafted=405, steps=(1, *(4,) * 15, *(1,) * 120))
    assert scene.verdict().reasons == ("acceptance-collapse",)


@pytest.mark.parametrize(
    ("last", "collapses"), [((0, 60), True), ((2, 60), True), ((0, 20), False), ((12, 60), False)]
)
def test_a_collapse_in_a_last_window_that_is_short(scene, last, collapses):
    for prompt, (accepted, drafted) in zip(
        ("w1", "w2", "w3", "w4"), ((78, 100), (76, 100), (77, 100), last), strict=True
    ):
        scene.change(prompt, accepted=accepted, drafted=drafted)
    assert scene.verdict().reasons == (("acceptance-collapse",) if collapses else ())


@pytest.mark.parametrize(
    ("dead", "collapses"), [((0, 90), True), ((1, 90), True), ((9, 90), False), ((0, 20), False)]
)
def test_a_collapse_in_every_other_slot(scene, dead, collapses):
    """llama.cpp#27572: drafts are accepted in one slot and not in the other, so that no window is bad as a whole."""
    for prompt, counts in zip(("w1", "w2", "w3", "w4"), ((88, 110), dead, dead, (88, 110)), strict=True):
        scene.change(prompt, accepted=counts[0], drafted=counts[1])
    assert scene.verdict().reasons == (("acceptance-collapse",) if collapses else ())
    if collapses:
        assert "on 2 of 4 prompts" in scene.found("acceptance-collapse").message


@pytest.mark.parametrize(("idle", "severity"), [(1, "note"), (2, "note"), (3, "unreadable")])
def test_prompts_on_which_nothing_was_drafted_are_told(scene, idle, severity):
    for prompt in ("w1", "w2", "w3")[:idle]:
        scene.change(prompt, accepted=0, drafted=0)
    assert scene.codes() == {"not-exercised": severity}
    scene.arms["mtp@1"] = msgspec.structs.replace(scene.arms["mtp@1"], method="prompt_lookup")
    assert scene.codes() == {"not-exercised": "note"}, "it drafts only where the text repeats itself"
    scene.change_all(ids=(65, 66, 2), text="AB", streamed="AB")  # so short that nothing needs be drafted
    assert "not-exercised" not in scene.codes()


@pytest.mark.parametrize(
    ("k", "accepted", "dead"),
    [(1, 9, True), (3, 9, True), (4, 9, True), (8, 9, False), (16, 3, False), (16, 2, True)],
)
def test_deep_drafts_are_mostly_lost_and_that_is_no_dead_head(scene, k, accepted, dead):
    """At K = 16 a head that is right every other time accepts one draft a step, 6 % of all."""
    scene.arms["mtp@1"] = msgspec.structs.replace(scene.arms["mtp@1"], k=k)
    scene.change_all(accepted=accepted, drafted=100)
    assert scene.verdict().reasons == (("dead-head",) if dead else ())


def test_a_decline_is_no_collapse(scene):
    for prompt, accepted in zip(("w1", "w2", "w3", "w4"), (90, 80, 60, 45), strict=True):
        scene.change(prompt, accepted=accepted, drafted=100)
    assert scene.verdict().decision == "serve"


def test_steps_that_contradict_the_counters_are_not_believed():
    answer = Answer(
        "m", "t", "p", 0, "s", 1, 400, ids=(1,) * 9, steps=(1, 2, 2, 2, 2), accepted=0, drafted=40
    )
    assert facts_of(answer, 1).drafts == (Drafts(position=0, accepted=0, drafted=40),)


def test_steps_that_agree_are_cut_into_pieces():
    answer = Answer(
        "m",
        "t",
        "p",
        0,
        "s",
        1,
        400,
        ids=(1,) * 81,
        steps=(1, *(2,) * 30, *(1,) * 20),
        accepted=30,
        drafted=50,
    )
    assert facts_of(answer, 1).drafts == (
        Drafts(position=1, accepted=25, drafted=25),
        Drafts(position=51, accepted=5, drafted=25),
    )


def test_windows_leave_a_short_rest_out():
    pieces = [Drafts(0, 10, 40), Drafts(40, 10, 70), Drafts(80, 0, 30)]
    assert windows(pieces, 100) == [(20, 110)]


def test_by_depth_counts_the_prompt_as_depth(scene):
    scene.change("w1", prompt_tokens=5000, accepted=0)
    pieces = by_depth(scene.run().evidence[0].spec.first())
    assert [p.accepted for p in pieces] == [90, 90, 90, 0]


def test_a_start_that_accepts_nothing(scene):
    """openvino.genai#4425: a fresh pipeline sometimes accepts no draft, with the text unchanged."""
    scene.probe("w1", "start", session=2, accepted=0, drafted=30)
    assert scene.verdict().reasons == ("unstable-start",)
    assert "start 1 of 1" in scene.found("unstable-start").message


@pytest.mark.parametrize(("accepted", "unstable"), [(1, True), (20, True), (30, False)])
def test_a_start_that_accepts_far_less_than_the_same_prompt_had(scene, accepted, unstable):
    for prompt in ("w2", "w3", "w4"):
        scene.change(prompt, accepted=30)  # what other prompts have says nothing of this one
    scene.probe("w1", "start", session=2, accepted=accepted, drafted=60)
    assert scene.verdict().reasons == (("unstable-start",) if unstable else ())
    if accepted == 1:
        assert (
            "an acceptance of 1.7 % (1/60), where 81.8 % are usual" in scene.found("unstable-start").message
        )


@pytest.mark.parametrize(("kind", "session"), [("start", 2), ("state", 1)])
def test_a_start_that_drafts_nothing(scene, kind, session):
    scene.probe("w1", kind, session=session, accepted=0, drafted=0)
    assert "drafted nothing (0/0), where 81.8 % are usual" in scene.found("unstable-start").message
    scene.probes.clear()
    scene.probe("w1", "state", session=0, accepted=0, drafted=0)  # no start of its own
    assert scene.verdict().decision == "serve"


def test_a_start_with_too_few_drafts_to_tell_is_not_blamed(scene):
    scene.probe("w1", "start", session=2, accepted=0, drafted=2)
    assert scene.verdict().decision == "serve"


def test_starts_are_counted_whatever_their_sessions_are_called(scene):
    scene.probe("w1", "state", session=5, accepted=0, drafted=110)
    scene.probe("w1", "start", session=3)
    assert "start 2 of 2" in scene.found("unstable-start").message


@pytest.mark.parametrize("counts", [(0, 10), (0, 0)])
def test_a_start_that_does_as_the_same_prompt_did_before_is_no_other(scene, counts):
    """A prompt of which nothing is accepted, and one of which nothing is drafted (no n-gram of it comes again)."""
    scene.change("w4", accepted=counts[0], drafted=counts[1])
    scene.probe("w4", "start")
    assert "unstable-start" not in scene.codes()


@pytest.mark.parametrize("drafted", [10**10, 10**25, 10**400], ids=["e10", "e25", "e400"])
def test_a_counter_beyond_any_answer_is_not_believed_and_breaks_nothing(scene, drafted):
    scene.probe("w1", "start", accepted=0, drafted=drafted)
    assert scene.verdict().decision == "serve"
    scene.change("w2", accepted=5, drafted=6)
    scene.change("w4", accepted=0, drafted=drafted)
    verdict = scene.verdict()
    assert (verdict.decision, scene.found("acceptance-collapse").severity) == ("inconclusive", "unreadable")
    assert "more than 1,000,000,000 drafts in one answer" in scene.found("acceptance-collapse").message


@pytest.mark.parametrize(("after", "collapses"), [((90, 98), False), ((2, 2), True), ((3, 98), True)])
def test_a_window_after_which_acceptance_recovers_is_not_the_last(scene, after, collapses):
    for prompt, counts in zip(("w1", "w2", "w3"), ((100, 110), (5, 110), after), strict=True):
        scene.change(prompt, accepted=counts[0], drafted=counts[1])
    scene.change("w4", accepted=0, drafted=0)
    assert ("acceptance-collapse" in scene.verdict().reasons) is collapses
