"""The threat: arms of one run decoded by different engines, or by one that can't do what was asked."""

from __future__ import annotations

from typing import Any

import pytest

from evals.arms import build_arms
from evals.digest import ModelDigests
from evals.engine.process import WORKERS
from evals.engines import ENGINES, GENAI, SPLIT, choose_engine, require_engine
from evals.model_dir import HeadLayout, ModelDirError

DIGESTS = ModelDigests(whole="w", target="t", head="h", files={})


@pytest.mark.parametrize(
    ("named", "layouts", "engine"),
    [
        (None, ["genai"], GENAI),
        (None, ["split"], SPLIT),
        (None, ["genai", "split"], SPLIT),
        (None, [None], GENAI),
        (SPLIT, ["genai"], SPLIT),
        (GENAI, ["genai"], GENAI),
    ],
)
def test_the_engine_is_one_that_decodes_every_head(
    named: str | None, layouts: list[HeadLayout | None], engine: str
) -> None:
    assert choose_engine(named, layouts) == engine


def test_an_engine_that_cannot_decode_a_head_is_refused() -> None:
    with pytest.raises(ModelDirError, match="--engine openvino-genai: it has no way"):
        choose_engine(GENAI, ["genai", "split"])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"device": "GPU.0"}, "--device GPU.0: expected CPU"),
        ({"scheduler": {"num_linear_attention_blocks": 4}}, "--scheduler num_linear_attention_blocks"),
        ({"concurrency": (1, 4)}, "--concurrency 4: expected 1"),
        ({"own_head": False}, "drafts with MTP heads only"),
        ({"picture": "pictures/p1"}, "pictures/p1 shows a picture"),
    ],
)
def test_what_the_split_engine_cannot_do_is_refused_before_anything_is_loaded(
    asked: dict[str, Any], words: str
) -> None:
    require_engine(GENAI, **asked)
    require_engine(SPLIT, scheduler={"cache_size": 2, "max_num_batched_tokens": 64})
    with pytest.raises(ModelDirError, match=words):
        require_engine(SPLIT, **asked)


def test_every_engine_has_a_command_and_all_arms_of_a_run_one_engine() -> None:
    assert set(WORKERS) == set(ENGINES)
    ours, theirs = (build_arms(DIGESTS, ks=(1, 2), engine=engine) for engine in (SPLIT, GENAI))
    assert {arm.engine for arm in ours} == {SPLIT}
    assert all(one.identity() != other.identity() for one, other in zip(ours, theirs, strict=True))
