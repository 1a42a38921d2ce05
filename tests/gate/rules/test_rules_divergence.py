"""The threat: a gate that blocks every flip is switched off, and one with a fixed epsilon lets a wrong token pass."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gate.margins import read_margin
from gate.policy import load_policy

A03 = json.loads((Path(__file__).parents[2] / "fixtures" / "A03.json").read_text())["repro"]


def noise(p99):
    return {"p50": p99 / 3, "p90": p99 / 2, "p99": p99, "max": p99 * 1.2}


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a03_a_near_tie_does_not_block_by_itself(scene, k):
    for arm in ("plain", "mtp@1"):
        ids = A03["plain_ids"] if arm == "plain" else A03["runs"][f"K{k}"]
        scene.change("w1", arm=arm, ids=tuple(ids), text=str(ids), streamed=None, accepted=3, drafted=4)
    scene.margin(
        "w1",
        token_index=4,
        gap=A03["plain_margin_at_divergence"],
        rank=A03["spec_token_rank_in_plain"],
        noise=noise(A03["width_noise_p99"]),
        rescored_max_gap=A03["max_gap_of_any_spec_token_teacher_forced"],
        rescored_max_gap_at=4,
    )
    assert scene.verdict().decision == "serve"
    assert scene.found("near-tie").severity == "note"
    assert scene.found("near-tie").evidence["token_index"] == 4


@pytest.mark.parametrize(
    ("fields", "code", "severity"),
    [
        ({"gap": 0.199}, "near-tie", "note"),
        ({"gap": 0.201}, "not-a-near-tie", "block"),
        ({"gap": 0.21, "rank": 1}, "near-tie", "note"),  # an exact tie: ties share a rank
        ({"gap": 0.1, "rescored_max_gap": 3.0, "rescored_max_gap_at": 77}, "not-a-near-tie", "block"),
        ({"gap": 0.1, "rescored_max_gap": 3.0}, "not-a-near-tie", "block"),
        ({"gap": 8.0, "gap_at_verify_width": 8.0}, "not-a-near-tie", "block"),
        ({"gap": 0.5, "reproduced": False}, "diverged", "note"),
        ({"gap": 0.9, "reproduced": False}, "not-a-near-tie", "unreadable"),
        ({"gap": 0.1, "noise": {"p50": 0.1}}, "diverged", "note"),  # the policy's quantile wasn't measured
    ],
)
def test_margins_are_read_against_the_measured_noise(scene, fields, code, severity):
    scene.diverge("w2")
    scene.margin("w2", **fields)  # width noise p99 0.1, so the limit is 0.2
    assert scene.codes() == {code: severity}


@pytest.mark.parametrize(
    ("fields", "code", "severity"),
    [
        # a margin of another divergence: as good as none, unless it is far too wide
        ({"token_index": 7}, "diverged", "note"),
        ({"token_index": 7, "gap": 9.1, "rank": 41}, "not-a-near-tie", "unreadable"),
        # what can't be a margin
        ({"gap": -5.0, "rank": 3}, "diverged", "note"),
        ({"gap": math.nan, "rank": 3}, "not-a-near-tie", "unreadable"),
        ({"gap": math.inf, "rank": 3}, "not-a-near-tie", "unreadable"),
        ({"gap": 9.1, "rank": 0}, "not-a-near-tie", "unreadable"),
        # no yardstick at all: the verify width computes something else
        ({"noise": noise(40.0), "gap": 30.0, "rank": 900}, "not-a-near-tie", "unreadable"),
        ({"gap_at_verify_width": 8.0}, "not-a-near-tie", "unreadable"),
        # no yardstick: what moved at the place itself is all that is known
        ({"noise": {}, "gap": 0.04}, "diverged", "note"),
        ({"noise": {}, "gap": 9.1, "rank": 41}, "not-a-near-tie", "unreadable"),
        (
            {"noise": {}, "movement": None, "gap": 0.04},
            "diverged",
            "note",
        ),  # nor is that: no noise is not a noise of 0
        ({"noise": {}, "movement": None, "gap": 9.1, "rank": 41}, "not-a-near-tie", "unreadable"),
        ({"noise": {"p99": math.nan}, "gap": 9.1, "rank": 41}, "not-a-near-tie", "unreadable"),
        ({"noise": {"p99": math.inf}, "gap": 9.1, "rank": 41}, "not-a-near-tie", "unreadable"),
        ({"noise": {"p99": -1.0}, "gap": 0.04}, "diverged", "note"),
    ],
)
def test_a_margin_that_can_not_be_one_is_no_evidence(scene, fields, code, severity):
    scene.diverge("w2")
    scene.margin("w2", **fields)
    assert scene.codes() == {code: severity}
    assert "this is no evidence: " in scene.found(code).message


def test_the_message_names_tokens_rank_gap_noise_and_index(scene):
    scene.diverge("w2")
    scene.margin("w2", gap=7.25, rank=12)
    found = scene.found("not-a-near-tie")
    assert found.message == (
        "csv/w2, mtp@1: parts from plain at token 40 ('w' where plain has \"'\"): rank 12 in plain's logits, "
        "7.25 nats below the best, limit 0.2 (width noise p99 0.1)"
    )
    assert found.evidence["k"] == 1
    assert (found.evidence["rank"], found.evidence["gap"], found.evidence["noise"]) == (12, 7.25, 0.1)


def test_the_stateful_graph_is_said(scene):
    scene.diverge("w2")
    scene.margin("w2", source="stateful")
    assert "not the one that was served" in scene.found("near-tie").message
    assert any("stateful graph" in c for c in scene.verdict().caveats)


def test_an_answer_that_ends_early_names_the_end(scene):
    ids = scene.answers_by["mtp@1", "csv", "w2", 0].ids
    scene.change("w2", ids=ids[:-1], text=scene.answers_by["mtp@1", "csv", "w2", 0].text)
    assert "'<|im_end|>'" in scene.found("diverged").message
    assert "the end of the answer" in scene.found("diverged").message


def test_a_models_text_cannot_break_the_message(scene):
    ids = scene.answers_by["mtp@1", "csv", "w2", 0].ids
    for mark in ("\n", "\x1b", "\u202e"):
        scene.change("w2", ids=(*ids[:40], ord(mark), *ids[41:]), text="x", streamed=None)
        assert mark not in scene.found("diverged").message


def test_identity_is_required_where_the_policy_says_so(scene, make_policy):
    policy = make_policy('[requirements]\ndefault = "identical"')
    assert scene.verdict(policy).decision == "serve"
    scene.diverge("w2")
    scene.margin("w2")
    assert scene.verdict(policy).reasons == ("not-identical",)
    assert "the policy requires identical answers" in scene.found("not-identical", policy).message


def test_the_policys_quantile_and_factor_decide(scene, make_policy):
    scene.diverge("w2")
    scene.margin("w2", gap=0.07)
    strict = make_policy('[thresholds]\nnear_tie_quantile = "p90"\nnear_tie_factor = 1.0')
    assert scene.codes(strict) == {"not-a-near-tie": "block"}


def test_no_margin_gives_no_reading():
    assert read_margin(None, load_policy(None)) is None
