"""The threat: hours of decoding before it turns out that the context was never going to fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.context import ContextError, require_context

SIZES = {"max_position_embeddings": 8192, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 64}


def ask(folder: Path, longest: int, config: object, **changes: object) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    settings: dict[str, object] = {
        "device": "CPU",
        "scheduler": {"cache_size": 1},
        "in_force": {"KV_CACHE_PRECISION": "f16"},
    }
    require_context(folder, longest, "--depths 4096, task csv", **{**settings, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [SIZES, {"text_config": SIZES}])
def test_over_the_declared_context_is_refused(tmp_path: Path, config: object) -> None:
    ask(tmp_path, 8192, config)
    with pytest.raises(
        ContextError, match=r"--depths 4096, task csv: expected at most 8,192 tokens .* found 8,193"
    ):
        ask(tmp_path, 8193, config)


def test_over_the_cache_is_refused_and_names_the_setting(tmp_path: Path) -> None:
    config = {**SIZES, "max_position_embeddings": 10**9}
    fits = (1 << 30) // (2 * 2 * 2 * 64 * 2)  # keys and values, layers, heads, head_dim, bytes of f16
    ask(tmp_path, fits, config, device="GPU.0")
    with pytest.raises(
        ContextError, match=r"KV cache of 1 GiB, .* 1,024 bytes; raise --scheduler cache_size"
    ):
        ask(tmp_path, fits + 1, config, device="GPU.0")
    ask(tmp_path, fits + 1, config, device="GPU.0", scheduler={"cache_size": 2})
    ask(
        tmp_path,
        2 * fits + 1,
        config,
        device="GPU.0",
        in_force={"KV_CACHE_PRECISION": "u4"},
        scheduler={"cache_size": 1},
    )


def test_only_layers_that_attend_in_full_keep_keys(tmp_path: Path) -> None:
    hybrid = {
        **SIZES,
        "max_position_embeddings": 10**9,
        "layer_types": ["linear_attention", "full_attention"],
    }
    ask(tmp_path, (1 << 30) // 512, hybrid, device="GPU.0")


def test_over_the_free_memory_is_refused(tmp_path: Path) -> None:
    config = {**SIZES, "max_position_embeddings": 10**12}
    with pytest.raises(ContextError, match=r"memory that is free"):
        ask(tmp_path, 10**11, config, scheduler={"cache_size": 0})


@pytest.mark.parametrize("config", [{}, {"max_position_embeddings": "many"}, [], {"text_config": None}])
def test_what_config_does_not_say_is_left_to_the_engine(tmp_path: Path, config: object) -> None:
    ask(tmp_path, 10**9, config)
