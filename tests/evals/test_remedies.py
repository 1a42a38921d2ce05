"""The threat: a remedy that is recommended though it was not measured, or that changes more than it says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from evals.arms import build_arms
from evals.decode import Asked, Plan
from evals.digest import ModelDigests, digest_model
from evals.engine.prepare import prepare
from evals.model_dir import inspect_model
from evals.remedies import OtherHead, Remedy, RemedyError, parse_remedy, try_remedies
from evals.tokens import TokenTable

ALL = [("t", "a"), ("t", "b")]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(
        model=tmp_path,
        arms=build_arms(
            ModelDigests(whole="w", target="t", head="h", files={}), ks=(3,), properties={"CACHE_MODE": "x"}
        ),
        repeats={},
        asked=(Asked("t", "a", "hello", 3), Asked("t", "b", "hello", 3)),
        stop_ids=frozenset({2}),
        state_probe=True,
        fresh_starts=2,
    )


@pytest.fixture
def fake(repo: Path) -> dict[str, Any]:
    return {"command": (sys.executable, "-P", str(repo / "tests" / "fixtures" / "fake_worker.py"))}


def test_remedies_are_parsed() -> None:
    assert parse_remedy("KV_CACHE_PRECISION=f32").properties == {"KV_CACHE_PRECISION": "f32"}
    both = parse_remedy("KV_CACHE_PRECISION=f32, K=1,HEAD=int4")
    assert (both.properties, both.k, both.head) == ({"KV_CACHE_PRECISION": "f32"}, 1, "int4")
    for text in ("", "K=0", "K=x", "K=65", "K=²", "K", "HEAD=", "kv=f32", "A=1,", ",".join(["A=1"] * 9)):
        with pytest.raises(RemedyError, match="expected"):
            parse_remedy(text)


def test_plain_is_decoded_under_the_same_settings_and_twice(plan: Plan, fake: dict[str, Any]) -> None:
    remedies = [parse_remedy("KV_CACHE_PRECISION=f32"), parse_remedy("K=1")]
    first, second = try_remedies(plan, plan.arms[1], [("t", "b")], remedies, **fake)
    assert [a.properties for a in first.arms] == [{"CACHE_MODE": "x", "KV_CACHE_PRECISION": "f32"}] * 2
    assert [(a.name, a.k) for a in first.arms] == [("plain", 0), ("mtp@3", 3)]
    assert sorted((a.arm, a.prompt, a.repeat, a.probe) for a in first.answers) == [
        ("mtp@3", "b", 0, None),
        ("plain", "b", 0, None),
        ("plain", "b", 1, None),
    ]
    assert [(a.name, a.k) for a in second.arms] == [("plain", 0), ("mtp@1", 1)]
    assert [a.properties for a in second.arms] == [{"CACHE_MODE": "x"}] * 2
    assert plan.arms[0].identity() not in {a.identity() for a in first.arms}


def test_a_remedy_that_changes_nothing_is_passed_over(plan: Plan, fake: dict[str, Any]) -> None:
    remedies = [parse_remedy(t) for t in ("K=3", "KV_CACHE_PRECISION=u8", "CACHE_MODE=x", "HEAD=unknown")]
    in_force = {"KV_CACHE_PRECISION": "u8"}
    assert list(try_remedies(plan, plan.arms[1], ALL, remedies, in_force=in_force, **fake)) == []
    assert list(try_remedies(plan, plan.arms[1], [], [parse_remedy("K=1")], **fake)) == []


def test_another_head_is_drafted_from_its_directory(plan: Plan, tmp_path: Path, fake: dict[str, Any]) -> None:
    heads = {"int4": OtherHead(digest="i" * 64, path=tmp_path / "int4")}
    (trial,) = try_remedies(plan, plan.arms[1], ALL, [parse_remedy("HEAD=int4")], heads=heads, **fake)
    assert (trial.arms[1].name, trial.arms[1].head_digest) == ("mtp@3:int4", "i" * 64)
    assert trial.refused is None
    assert len(trial.answers) == 6


def test_every_other_head_that_was_given_is_tried_in_turn(
    plan: Plan, tmp_path: Path, fake: dict[str, Any]
) -> None:
    own = plan.arms[1].head_digest
    assert own is not None
    heads = {
        name: OtherHead(digest=digest, path=tmp_path / name)
        for name, digest in {"own": own, "int4": "i" * 64, "f16": "f" * 64}.items()
    }
    trials = list(try_remedies(plan, plan.arms[1], ALL, [parse_remedy("HEAD = *, K=1")], heads=heads, **fake))
    assert [t.arms[1].name for t in trials] == ["mtp@1:own", "mtp@1:int4", "mtp@1:f16"]
    assert [t.remedy.text for t in trials] == ["HEAD=own, K=1", "HEAD=int4, K=1", "HEAD=f16, K=1"]
    trials = list(try_remedies(plan, plan.arms[1], ALL, [parse_remedy("HEAD=*")], heads=heads, **fake))
    assert [t.arms[1].name for t in trials] == ["mtp@3:int4", "mtp@3:f16"]
    assert list(try_remedies(plan, plan.arms[1], ALL, [parse_remedy("HEAD=*")], **fake)) == []


def test_trials_stop_where_the_caller_does(plan: Plan, tmp_path: Path, fake: dict[str, Any]) -> None:
    trials = try_remedies(plan, plan.arms[1], ALL, [parse_remedy("K=1"), parse_remedy("K=2")], **fake)
    assert next(trials).remedy.k == 1
    trials.close()  # type: ignore[attr-defined]
    assert (tmp_path / "starts-mtp").read_text() == "1"


@pytest.mark.engine
def test_settings_that_the_engine_refuses_are_no_remedy(
    sample_dir: Path, known_texts: tuple[str, str]
) -> None:
    model = inspect_model(sample_dir)
    rendered = prepare(model, known_texts[1:]).rendered
    plan = Plan(
        model=sample_dir,
        arms=build_arms(digest_model(model), ks=(1,)),
        repeats={},
        asked=(Asked("t", "a", rendered[0], 12),),
        stop_ids=TokenTable.load(sample_dir).stop_ids,
    )
    remedies = [Remedy("odd", properties={"NO_SUCH": "1"}), parse_remedy("KV_CACHE_PRECISION=f32")]
    refused, kept = try_remedies(plan, plan.arms[1], ALL, remedies)
    assert refused.answers == ()
    assert refused.refused is not None and "NO_SUCH" in refused.refused
    assert kept.refused is None
    assert [a.failure for a in kept.answers] == [None] * 3
