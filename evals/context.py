"""What context a model declares and a KV cache holds: a prompt too long for either is refused before decoding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from evals.model_dir import MAX_CONFIG

_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "u8": 1.0, "i8": 1.0, "u4": 0.5, "i4": 0.5}


class ContextError(ValueError):
    """A prompt that is longer than the model or the memory allows: expected, found, where, what to do."""


class _Sizes(msgspec.Struct, frozen=True):
    max_position_embeddings: int | None = None
    num_hidden_layers: int | None = None
    num_key_value_heads: int | None = None
    num_attention_heads: int | None = None
    hidden_size: int | None = None
    head_dim: int | None = None
    layer_types: list[str] | None = None


class _Config(_Sizes, frozen=True):
    text_config: _Sizes | None = None


def require_context(
    model: Path,
    longest: int,
    place: str,
    *,
    device: str,
    scheduler: Mapping[str, int | bool],
    in_force: Mapping[str, str],
) -> None:
    """Raise ContextError where `longest` tokens (prompt and answer) don't fit the model or its KV cache.

    place: what asks for them, for the message. What config.json doesn't say isn't checked: the engine then refuses.
    """
    sizes = _sizes(model)
    most = sizes.max_position_embeddings
    if most is not None and longest > most:
        raise ContextError(
            f"{place}: expected at most {most:,} tokens of prompt and answer (max_position_embeddings in "
            f"{model / 'config.json'}), found {longest:,}; ask for a smaller depth"
        )
    per_token = _kv_bytes(sizes, in_force.get("KV_CACHE_PRECISION", ""))
    if per_token is None:
        return
    needed = longest * per_token
    cache = 0 if "num_kv_blocks" in scheduler else int(scheduler.get("cache_size", 0))
    if cache and needed > cache << 30:
        raise ContextError(
            f"{place}: expected a prompt and answer that fit the KV cache of {cache} GiB, found {longest:,} tokens "
            f"of {per_token:,.0f} bytes; raise --scheduler cache_size=GIB or ask for a smaller depth"
        )
    free: int = psutil.virtual_memory().available
    if device.upper().startswith("CPU") and needed > free:
        raise ContextError(
            f"{place}: expected a KV cache that fits the memory that is free ({free >> 20:,} MiB), found {longest:,} "
            f"tokens of {per_token:,.0f} bytes; ask for a smaller depth"
        )


def _sizes(model: Path) -> _Sizes:
    file = model / "config.json"
    try:
        with file.open("rb") as opened:
            config = msgspec.json.decode(opened.read(MAX_CONFIG), type=_Config)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Sizes()
    return config.text_config or config


def _kv_bytes(sizes: _Sizes, precision: str) -> float | None:
    """Bytes of keys and values a token takes in all layers that attend in full; None where that isn't known."""
    layers = sizes.num_hidden_layers
    if sizes.layer_types is not None:
        layers = sum(kind == "full_attention" for kind in sizes.layer_types)
    heads = sizes.num_key_value_heads or sizes.num_attention_heads
    dim = sizes.head_dim
    if dim is None and sizes.hidden_size and sizes.num_attention_heads:
        dim = sizes.hidden_size // sizes.num_attention_heads
    width = _BYTES.get(precision)
    if not layers or not heads or not dim or width is None:
        return None
    return 2 * layers * heads * dim * width
