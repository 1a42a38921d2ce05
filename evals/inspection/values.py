"""Samples of a weights file: a few kilobytes at a time, so that a file of 20 GB costs no more than a small one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from evals.inspection.graph import BITS, Const, Graph
from evals.inspection.weights import CODEBOOKS, Weight
from evals.model_dir import ModelDirError

_DTYPES: dict[str, Any] = {
    "f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "i8": "i1", "u8": "u1", "u64": "<u8",
    "u32": "<u4", "i16": "<i2", "u16": "<u2",
}  # fmt: skip
MAX_READ = 1 << 20
Array = npt.NDArray[np.float64]


def read_values(graph: Graph, const: Const, first: int = 0, count: int = 1024) -> Array | None:
    """Elements first … first + count of a constant as numbers; None for a type that has no reader here.

    Raises ModelDirError where the file can't be read or ends before.
    """
    count = min(count, const.elements - first)
    bits = BITS.get(const.type, 0)
    if count <= 0 or bits == 0 or count * bits > 8 * MAX_READ or (first * bits) % 8:
        return None
    size = (count * bits + 7) // 8
    try:
        with graph.weights_file.open("rb") as file:
            file.seek(const.offset + first * bits // 8)
            data = file.read(size)
    except (OSError, OverflowError) as error:
        raise ModelDirError(f"{graph.weights_file}: cannot be read ({error}).") from error
    if len(data) < size:
        raise ModelDirError(
            f"{graph.weights_file}: broken: it ends before its constant {const.name[-80:]} at {const.offset} "
            f"(+{const.size} bytes). Fetch it again."
        )
    with np.errstate(all="ignore"):
        return _numbers(const.type, data, count)


def _numbers(kind: str, data: bytes, count: int) -> Array | None:
    if kind == "bf16":
        wide = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    if kind in ("u4", "i4"):
        packed = np.frombuffer(data, dtype=np.uint8)
        nibbles = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[:count].astype(np.float64)
        return nibbles if kind == "u4" else np.where(nibbles > 7, nibbles - 16, nibbles)
    if kind not in _DTYPES:
        return None
    return np.frombuffer(data, dtype=_DTYPES[kind]).astype(np.float64)


def read_row(graph: Graph, weight: Weight, row: int) -> Array | None:
    """One row of a weight [rows, …], scale and zero point applied; None where it can't be laid out."""
    const, width = weight.const, weight.const.elements // max(weight.const.shape[0], 1)
    values = read_values(graph, const, row * width, width)
    if weight.mode in CODEBOOKS:
        return None
    if values is None or weight.scale is None:
        return values if weight.mode in _DTYPES or weight.mode == "bf16" else None
    groups = values.reshape(-1, weight.group) if weight.group and weight.group > 0 else values.reshape(1, -1)
    scale = _row_of(graph, weight.scale, const.shape[0], row, len(groups))
    zero = _row_of(graph, weight.zero, const.shape[0], row, len(groups)) if weight.zero else np.zeros(1)
    if scale is None or zero is None:
        return None
    with np.errstate(all="ignore"):  # damaged weights give infinities, which whole.py reports
        return np.asarray((groups - zero.reshape(-1, 1)) * scale.reshape(-1, 1), dtype=np.float64).reshape(-1)


def _row_of(graph: Graph, const: Const, rows: int, row: int, groups: int) -> Array | None:
    if const.elements == 1:
        return read_values(graph, const)
    if const.elements != rows * groups:
        return None
    bits = BITS.get(const.type, 8)
    whole = row * groups if (row * groups * bits) % 8 == 0 else row * groups - 1
    values = read_values(graph, const, whole, groups + row * groups - whole)
    return None if values is None else values[row * groups - whole :]


def unsound_constants(graph: Graph, most: int = 48) -> tuple[int, int, int]:
    """(looked at, all zero, not finite) among the largest float constants: scales, norms, uncompressed weights.

    From each the first 512 elements and 512 in its middle.
    """
    floats = [c for c in graph.consts.values() if c.type in ("f16", "f32", "bf16") and c.elements >= 32]
    floats.sort(key=lambda const: -const.size)
    stride = max(1, len(floats) // most)
    looked = zeros = infinite = 0
    for const in floats[::stride][:most]:
        samples = [read_values(graph, const, first, 512) for first in (0, const.elements // 2)]
        values = np.concatenate([sample for sample in samples if sample is not None])
        looked += 1
        finite = bool(np.isfinite(values).all())
        zeros += finite and not values.any()
        infinite += not finite
    return looked, zeros, infinite
