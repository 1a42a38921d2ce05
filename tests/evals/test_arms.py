"""The threat: an arm that isn't what it is called, or two that differ in more than they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from evals.arms import ArmError, build_arms, control_paths, parse_property, parse_scheduler
from evals.control import ControlHead
from evals.digest import ModelDigests


def control(seed: int) -> ControlHead:
    return ControlHead(path=Path(f"/{seed}"), seed=seed, digest="c" * 64, permuted=1)


DIGESTS = ModelDigests(whole="w" * 64, target="t" * 64, head="h" * 64, files={})


def test_plain_comes_first_and_depths_are_kept_once() -> None:
    arms = build_arms(DIGESTS, ks=(1, 3, 1))
    assert [(a.name, a.method, a.k) for a in arms] == [
        ("plain", "plain", 0),
        ("mtp@1", "mtp", 1),
        ("mtp@3", "mtp", 3),
    ]
    assert [a.head_digest for a in arms] == [None, "h" * 64, "h" * 64]


@pytest.mark.parametrize("k", [0, -1, 65])
def test_depths_that_make_no_arm_are_refused(k: int) -> None:
    with pytest.raises(ArmError, match=f"--k {k}: expected"):
        build_arms(DIGESTS, ks=(1, k))
    with pytest.raises(ArmError, match="at least one"):
        build_arms(DIGESTS, ks=())


def test_whatever_can_change_the_numerics_changes_the_identity() -> None:
    base = build_arms(DIGESTS)[1]
    others = [
        build_arms(DIGESTS, ks=(2,))[1],
        build_arms(DIGESTS, device="GPU.0")[1],
        build_arms(DIGESTS, properties={"KV_CACHE_PRECISION": "f32"})[1],
        build_arms(DIGESTS, scheduler={"max_num_batched_tokens": 64})[1],
        build_arms(DIGESTS, versions={"openvino": "1"})[1],
        build_arms(replace(DIGESTS, head="x" * 64))[1],
        build_arms(replace(DIGESTS, target="x" * 64))[1],
        build_arms(DIGESTS, controls=[control(1)])[2],
        build_arms(DIGESTS, controls=[control(2)])[2],
    ]
    assert len({a.identity() for a in (base, *others)}) == len(others) + 1
    assert replace(base, name="other").identity() == base.identity()


def test_heads_side_by_side_have_arms_of_their_own() -> None:
    arms = build_arms(DIGESTS, ks=(1, 2), heads={"f16": "a" * 64, "int4": "b" * 64})
    assert [a.name for a in arms] == ["plain", "mtp@1:f16", "mtp@2:f16", "mtp@1:int4", "mtp@2:int4"]
    assert [a.head_digest for a in arms[1:]] == ["a" * 64] * 2 + ["b" * 64] * 2


def test_defaults_are_written_down() -> None:
    scheduler = build_arms(DIGESTS, scheduler={"cache_size": 4})[0].scheduler
    assert scheduler["cache_size"] == 4
    assert scheduler["enable_prefix_caching"] is False


def test_prefix_caching_is_refused() -> None:
    with pytest.raises(ArmError, match="expected false"):
        build_arms(DIGESTS, scheduler={"enable_prefix_caching": True})


@pytest.mark.parametrize("device", ["", "../x", "GPU 0", "x" * 200])
def test_devices_out_of_form_are_refused(device: str) -> None:
    with pytest.raises(ArmError, match="--device"):
        build_arms(DIGESTS, device=device)


def test_properties_are_parsed_by_form() -> None:
    assert parse_property("KV_CACHE_PRECISION=f32") == ("KV_CACHE_PRECISION", "f32")
    assert parse_property("CACHE_DIR= /a=b") == ("CACHE_DIR", "/a=b")
    for text in ("", "KEY", "=1", "KEY=", "key=1", "A B=1", "K=\x1b[0m", "K=" + "x" * 201):
        with pytest.raises(ArmError, match="KEY=VALUE"):
            parse_property(text)


def test_scheduler_settings_are_parsed_by_kind() -> None:
    assert parse_scheduler("cache_size=2") == ("cache_size", 2)
    assert parse_scheduler("dynamic_split_fuse=False") == ("dynamic_split_fuse", False)
    for text, words in [
        ("cache_size=-1", "whole number"),
        ("cache_size=x", "whole number"),
        ("cache_size=true", "whole number"),
        ("dynamic_split_fuse=1", "true or false"),
        ("cachesize=1", "one of cache_size"),
        ("", "one of cache_size"),
    ]:
        with pytest.raises(ArmError, match=words):
            parse_scheduler(text)


def test_control_arms_know_their_head() -> None:
    controls = [control(7), control(8)]
    arms = build_arms(DIGESTS, ks=(1, 2), controls=controls)
    assert [a.name for a in arms[3:]] == ["control@1", "control@2", "control@1:8", "control@2:8"]
    assert [a.control_seed for a in arms[3:]] == [7, 7, 8, 8]
    assert control_paths(arms, controls) == {
        "control@1": Path("/7"),
        "control@2": Path("/7"),
        "control@1:8": Path("/8"),
        "control@2:8": Path("/8"),
    }
