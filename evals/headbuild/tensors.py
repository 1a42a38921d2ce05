"""Safetensors files read in pieces, bf16 included, so that memory holds one copy of what is built and no more.

The safetensors library maps whole files and knows no bf16 for numpy; the format is a length, a JSON header and bytes
(https://huggingface.co/docs/safetensors/index#format). Files are others': every number in the header is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from evals.model_dir import ModelDirError

MAX_HEADER = 100 << 20
"""Bytes; the safetensors library refuses larger ones too."""

PIECE = 1 << 22
"""Elements that are converted at once."""

WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an element of the types that a head is stored in."""

F16_MAX = 65504

Array = npt.NDArray[Any]


class Tensor(msgspec.Struct, frozen=True):
    """A tensor in a file. dtype: safetensors' name. offset, size: bytes, from the file's start."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_header(file: Path) -> dict[str, Tensor]:
    """Every tensor of a file by name. Raises ModelDirError for a file that is cut, damaged or of another format."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(MAX_HEADER, size - 8):
                _refuse(file, f"a header of {length} bytes in a file of {size}")
            header = msgspec.json.decode(stream.read(length), type=dict[str, msgspec.Raw])
        entries = {name: raw for name, raw in header.items() if name != "__metadata__"}
        return {
            name: _tensor(file, name, msgspec.json.decode(raw, type=_Entry), 8 + length, size)
            for name, raw in entries.items()
        }
    except OSError as error:
        raise ModelDirError(f"{file}: cannot be read ({error}). Check its permissions.") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        _refuse(file, str(error))


def pieces(tensor: Tensor) -> Iterator[Array]:
    """A tensor's values as float32, flat, in order, at most PIECE at once.

    Raises ModelDirError, also for values that aren't finite: the head would answer NaN.
    """
    left = math.prod(tensor.shape)
    try:
        with tensor.file.open("rb") as stream:
            stream.seek(tensor.offset)
            while left:
                count = min(left, PIECE)
                raw = stream.read(count * WIDTHS[tensor.dtype])
                if len(raw) != count * WIDTHS[tensor.dtype]:
                    _refuse(tensor.file, f"an end in the midst of {tensor.name[:80]}")
                values = _widened(raw, tensor.dtype)
                if not np.isfinite(values).all():
                    _refuse(tensor.file, f"values in {tensor.name[:80]} that aren't finite")
                yield values
                left -= count
    except OSError as error:
        raise ModelDirError(f"{tensor.file}: cannot be read ({error}).") from error


def read_tensor(tensor: Tensor, kind: type[np.floating[Any]], out: Array | None = None) -> Array:
    """A tensor in its shape as float16 or float32, into `out` where given.

    Raises ModelDirError, also for values that are too large for float16.
    """
    values = np.empty(tensor.shape, kind) if out is None else out
    flat, at = values.reshape(-1), 0
    for piece in pieces(tensor):
        with np.errstate(over="ignore"):
            flat[at : at + len(piece)] = piece
        if not np.isfinite(flat[at : at + len(piece)]).all():
            raise ModelDirError(
                f"{tensor.file}: {tensor.name} holds values beyond float16's {F16_MAX}. Take --weight-format fp32."
            )
        at += len(piece)
    return values


def _widened(raw: bytes, dtype: str) -> Array:
    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, "<f4" if dtype == "F32" else "<f2").astype(np.float32, copy=False)


def _tensor(file: Path, name: str, entry: _Entry, begin: int, size: int) -> Tensor:
    first, last = entry.data_offsets
    shown = f"tensor {name[:80]} of shape {list(entry.shape)[:8]} {entry.dtype[:16]}"
    if any(side < 0 for side in entry.shape) or not 0 <= first <= last:
        _refuse(file, f"{shown} at {first}:{last}")
    if begin + last > size:
        _refuse(file, f"{shown} ending at byte {begin + last} of {size} (a cut download)")
    width = WIDTHS.get(entry.dtype)
    if width is not None and math.prod(entry.shape) * width != last - first:
        _refuse(file, f"{shown} in {last - first} bytes")
    return Tensor(file, name, entry.dtype, entry.shape, begin + first, last - first)


def _refuse(file: Path, found: str) -> NoReturn:
    raise ModelDirError(f"{file}: expected a safetensors file, found {found}. Fetch it again.")
