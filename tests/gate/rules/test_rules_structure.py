"""The threat: faults that no tolerance excuses and that a text diff doesn't name: leaks, overshoot, lost or doubled
tokens. And its twin: calling an honest difference one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures"
COUNT = "\n".join(map(str, range(1, 41))) + "\n"


def report(name):
    return json.loads((FIXTURES / f"{name}.json").read_text())["repro"]


def blocked(scene, code):
    verdict = scene.verdict()
    assert verdict.decision == "do_not_serve"
    assert code in verdict.reasons
    return scene.found(code)


def test_a08_tokens_after_the_stop(scene):
    repro = report("A08")
    plain, spec = (
        tuple(2 if i == repro["stop_id"] else i for i in repro[a]["ids"]) for a in ("plain", "spec")
    )
    for repeat in (0, 1):
        scene.change(
            "w1", arm="plain", repeat=repeat, ids=plain, text="abc", streamed="abc", max_new_tokens=6
        )
        scene.change(
            "w1",
            repeat=repeat,
            ids=spec,
            text="abc",
            streamed="abc",
            max_new_tokens=6,
            finish="length",
            accepted=3,
        )
    message = blocked(scene, "post-stop-leak").message
    assert (
        "delivers 2 tokens after the stop at token 3 and reports finish=length; plain reports finish=stop"
        in message
    )


def test_what_plain_leaks_as_well_is_not_the_heads_doing(scene):
    for arm in scene.arms:
        scene.change("w1", arm=arm, ids=(*scene.answers_by["plain", "csv", "w2", 0].ids, 65))
    assert scene.verdict().decision == "serve"


def test_more_tokens_than_allowed(scene):
    scene.change("w1", max_new_tokens=190)
    found = blocked(scene, "budget-overshoot")
    assert found.evidence["over_budget"] == found.evidence["tokens"] - 190 > 0


def test_fewer_tokens_than_billed(scene):
    tokens = len(scene.answers_by["plain", "csv", "w1", 0].ids)
    scene.change_all(arm="plain", reported_tokens=tokens + 1)  # the end of sequence, billed and not delivered
    scene.change_all(reported_tokens=tokens + 1)
    assert scene.verdict().decision == "serve"
    scene.change("w1", reported_tokens=tokens + 3)
    assert f"delivers {tokens} tokens and bills {tokens + 3}" in blocked(scene, "short-delivery").message


def test_fewer_tokens_than_the_budget_that_ended_it(scene):
    scene.change("w1", finish="length")
    assert "budget of 400 tokens ended it" in blocked(scene, "short-delivery").message
    scene.change("w1", arm="plain", finish="length")
    assert scene.verdict().decision == "serve"


@pytest.mark.parametrize("finish", ["stop", "unknown"])
def test_plains_answer_without_its_end_and_no_stop_token(scene, finish):
    text = scene.answers_by["plain", "csv", "w1", 0].text
    ids = scene.answers_by["plain", "csv", "w1", 0].ids
    scene.change("w1", ids=ids[:-9], text=text[:-8], streamed=text[:-8], finish=finish)
    message = blocked(scene, "short-delivery").message
    assert f"the first {len(ids) - 9} tokens of plain's answer, 9 fewer, without a stop token" in message


def test_plains_answer_without_its_end_may_be_honest(scene):
    text = scene.answers_by["plain", "csv", "w1", 0].text
    ids = scene.answers_by["plain", "csv", "w1", 0].ids
    scene.change("w1", ids=(*ids[:-9], 2), text=text[:-8], streamed=text[:-8])  # it chose to stop there
    assert scene.codes() == {"diverged": "note"}
    for arm in scene.arms:  # stop tokens aren't delivered at all
        scene.change_all(arm=arm, ids=ids[:-1], text=text, streamed=text)
    scene.change("w1", ids=ids[:-9], text=text[:-8], streamed=text[:-8])
    assert scene.codes() == {"diverged": "note"}


def test_one_answer_that_plain_delivers_short_does_not_excuse_the_others(scene):
    tokens = len(scene.answers_by["plain", "csv", "w1", 0].ids)
    for arm in scene.arms:
        scene.change("w1", arm=arm, reported_tokens=tokens + 50)
        for prompt in ("w2", "w3", "w4"):
            scene.change(prompt, arm=arm, reported_tokens=tokens)
    assert scene.verdict().decision == "serve"
    scene.change("w2", reported_tokens=tokens + 40)
    assert blocked(scene, "short-delivery").prompt == "w2"


def test_a_character_that_the_budget_cut_is_no_fault_of_the_stream(scene):
    text = scene.answers_by["plain", "csv", "w1", 0].text
    tokens = len(scene.answers_by["plain", "csv", "w1", 0].ids) - 1
    cut = {"ids": tuple(map(ord, text)), "finish": "length", "max_new_tokens": tokens}
    scene.change("w1", arm="plain", text=text + "\ufffd", streamed=text, **cut)
    scene.change("w1", text=text, streamed=text + "\ufffd", **cut)
    assert scene.codes() == {"diverged": "note"}
    scene.change("w1", text=text[:50] + "\ufffd" + text[51:], streamed=text, **cut)
    assert scene.codes()["stream-mismatch"] == "block"


def test_the_same_tokens_with_another_finish_reason(scene):
    for arm in scene.arms:
        scene.change("w1", arm=arm, max_new_tokens=len(scene.answers_by[arm, "csv", "w1", 0].ids))
    scene.change("w1", finish="length")
    assert "finish=length where plain reports finish=stop" in blocked(scene, "finish-mismatch").message
    scene.change("w1", finish="unknown")
    assert scene.verdict().decision == "serve"


def test_another_text_may_end_for_another_reason(scene):
    scene.diverge("w1")
    scene.change("w1", finish="length", max_new_tokens=len(scene.answers_by["mtp@1", "csv", "w1", 0].ids))
    assert scene.codes() == {"diverged": "note"}


def test_a_control_token_in_the_body(scene):
    ids = scene.answers_by["mtp@1", "csv", "w1", 0].ids
    scene.change("w1", ids=(*ids[:20], 3, *ids[20:]))
    found = blocked(scene, "control-token")
    assert "first at token 20 ('<|im_start|>')" in found.message


def test_a02_the_stream_says_it_twice(scene):
    repro = report("A02")
    for arm in scene.arms:
        scene.change("w1", arm=arm, text=repro["final_text"], accepted=2, drafted=3)
    scene.change("w1", streamed="".join(repro["spec_stream_chunks"]))
    assert "(the ids equal plain's)" in blocked(scene, "stream-mismatch").message


def test_a_stream_that_plain_garbles_too_is_a_note(scene):
    for arm in scene.arms:
        scene.change("w1", arm=arm, streamed="x")
    assert scene.codes() == {"stream-mismatch": "note"}
    assert scene.verdict().decision == "serve"


def test_a01_skipped_tokens_with_a_wide_margin(scene):
    repro = report("A01")
    scene.change("w1", arm="plain", ids=tuple(repro["plain_ids"]), text="1\n2\n3\n4\n5\n6\n", streamed=None)
    scene.change("w1", ids=tuple(repro["spec_ids"]), text="1\n3\n4\n6\n", streamed=None, accepted=3)
    assert "drops 2 spans of plain's answer" in blocked(scene, "skipped-or-repeated-tokens").message
    scene.margin(
        "w1",
        gap=repro["plain_top1_minus_top2_at_divergence"],
        rank=repro["spec_token_rank_in_plain"],
        token_index=2,
    )
    found = scene.found("skipped-or-repeated-tokens")
    assert "rank 41 in plain's logits, 9.1 nats below the best" in found.message
    assert "not-a-near-tie" in scene.verdict().reasons


def without(text, *parts):
    for part in parts:
        assert part in text
        text = text.replace(part, "", 1)
    return text


@pytest.mark.parametrize(
    ("margin", "severity"),
    [
        (None, "unreadable"),
        ({}, None),  # a near-tie: an honest line less
        ({"gap": 7.0, "rank": 30}, "block"),
        ({"rescored_max_gap": 6.0, "rescored_max_gap_at": 90}, "block"),
        ({"reproduced": False}, "unreadable"),
    ],
)
def test_one_line_less_is_read_by_its_margin(scene, margin, severity):
    text = scene.answers_by["plain", "csv", "w1", 0].text
    scene.change("w1", text=without(text, "            field = ''\n"))
    if margin is not None:
        scene.margin("w1", **margin)
    assert scene.codes().get("skipped-or-repeated-tokens") == severity


def test_one_number_less_in_an_exact_task_needs_no_margin(make_scene):
    scene = make_scene(judge="constraints", kind="exact")
    for arm in scene.arms:
        scene.change_all(arm=arm, text=COUNT, accepted=60, drafted=80)
    scene.change("w1", text=without(COUNT, "17\n"))
    assert "(first: plain's tokens 4" in blocked(scene, "skipped-or-repeated-tokens").message


def test_a_doubled_span_in_an_exact_task(make_scene):
    scene = make_scene(judge="constraints", kind="exact")
    for arm in scene.arms:
        scene.change_all(arm=arm, text=COUNT, accepted=60, drafted=80)
    scene.change("w1", text=COUNT.replace("17\n18\n", "17\n18\n17\n18\n"))
    assert "says 1 spans again" in blocked(scene, "skipped-or-repeated-tokens").message


def test_an_honest_other_text_is_no_skip(scene):
    scene.diverge("w1")
    assert scene.codes() == {"diverged": "note"}


def test_an_answer_that_changes_after_a_load_of_others(scene):
    """vllm#35800: state that leaks from one request into the next."""
    scene.probe("w1", "state", session=0, order=30, text="another", ids=(97, 98, 2))
    found = blocked(scene, "state-leak")
    assert "number 30 of session 0" in found.message


def test_a_leak_that_plain_has_too_is_not_put_down_to_the_head(scene):
    for arm in scene.arms:
        scene.probe("w1", "state", arm=arm, session=0, order=30, text="another", ids=(97, 98, 2))
    assert scene.verdict().reasons == ("plain-unrepeatable",)


def test_an_arm_that_loops_where_plain_does_not(scene):
    loop = "        field += mark\n" * 16
    scene.change("w1", text=loop, ids=tuple(map(ord, loop)), finish="length", max_new_tokens=len(loop))
    assert "runs in a loop" in blocked(scene, "degenerate-spec").message


def test_an_arm_that_says_nothing_where_plain_does(scene):
    scene.change("w1", ids=(2,), text="", accepted=0, drafted=1)
    assert "is empty, where plain's does not" in blocked(scene, "degenerate-spec").message


def test_control_heads_that_differ_from_each_other_leak(scene):
    scene.add_arm("control@1", "control", 1, control_seed=1)
    scene.add_arm("control@1#2", "control", 1, control_seed=2)
    assert "draft-leak" not in scene.codes()
    scene.diverge("w2", arm="control@1#2")
    assert scene.codes() == {"draft-leak": "note"}
    assert "differ on 1 of 4 prompts" in scene.found("draft-leak").message


def test_a_control_head_that_accepts_is_void(scene):
    scene.add_arm("control@1", "control", 1, control_seed=1)
    scene.change_all(arm="control@1", accepted=5)
    assert "acceptance 4.5 % (20/440), 2.0 % or more" in scene.found("control-void").message
    scene.change_all(arm="control@1", drafted=0, accepted=0)
    assert "drafted nothing (0/0)" in scene.found("control-void").message


def test_the_same_control_does_not_count_for_another_k(scene):
    scene.add_arm("control@3", "control", 3, control_seed=1)
    scene.change_all(arm="control@3", accepted=90)
    assert scene.codes() == {}
