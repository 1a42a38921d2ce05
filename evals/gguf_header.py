"""What a GGUF file says of itself before its weights: read here with bounds, ahead of the native reader.

openvino-genai 2026.4.1 ends without a reason on a damaged header, and takes a file whose last bytes are missing for
whole (it maps the file). The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec

from evals.model_dir import POINTER, ModelDirError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEADER = 256 << 20
MAX_ENTRIES = 100_000
MAX_ARRAY = 4_000_000

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 28: (1, 8), 30: (1, 2),
}  # fmt: skip
"""Tensor type → elements and bytes of a block; of types that are absent here only the first byte is looked for."""

_SIZES = {
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class GgufHeader(msgspec.Struct, frozen=True):
    """architecture: e.g. "llama". sizes: what config.json calls them → value. needed: where the last tensor ends, in
    bytes of the file."""

    architecture: str
    sizes: dict[str, int]
    needed: int


def read_header(path: Path) -> GgufHeader:
    """Raises ModelDirError for a file that is no GGUF file, is damaged or cut, or has a header beyond any model's."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = _Reader(path, file, size).header()
    except OSError as error:
        raise ModelDirError(f"{path}: cannot be read ({error}). Check its permissions.") from error
    if header.needed > size:
        raise ModelDirError(
            f"{path}: broken: {size} bytes, its tensors need {header.needed} (a cut download). Fetch it again."
        )
    return header


class _Reader:
    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._left = min(size, MAX_HEADER)

    def header(self) -> GgufHeader:
        found = self._file.read(len(MAGIC))
        if found != MAGIC:
            rest = self._file.read(len(POINTER) - len(MAGIC))
            what = "a Git LFS pointer file" if found + rest == POINTER else f"one that begins with {found!r}"
            raise ModelDirError(f"{self._path}: expected a GGUF file, found {what}. Fetch it again.")
        version = self._number("I")
        if version not in VERSIONS:
            self._refuse(f"version {version} (2 and 3 are known)")
        tensors, entries = self._count(MAX_ENTRIES, "tensors"), self._count(MAX_ENTRIES, "entries")
        said = {self._text(): self._value() for _ in range(entries)}
        ends = [self._tensor_end() for _ in range(tensors)]
        alignment = said.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment < 1 << 20:
            self._refuse("an alignment that is no number")
        start = -(-self._file.tell() // alignment) * alignment
        architecture = said.get("general.architecture")
        if not isinstance(architecture, str) or not _NAME.fullmatch(architecture) or not tensors:
            self._refuse("no architecture's name" if tensors else "no tensors")
        sizes = {name: said.get(f"{architecture}.{key}") for name, key in _SIZES.items()}
        return GgufHeader(
            architecture=architecture,
            sizes={
                name: value for name, value in sizes.items() if type(value) is int and 0 < value < 1 << 31
            },
            needed=min(start + max(ends), 1 << 63),
        )

    def _tensor_end(self) -> int:
        """Where a tensor ends, in bytes behind the header."""
        name = self._text()
        dimensions = self._number("I")
        if dimensions > 8:
            self._refuse(f"a tensor {name[:60]!r} of {dimensions} dimensions")
        shape = [self._number("Q") for _ in range(dimensions)]
        kind, offset = self._number("I"), self._number("Q")
        elements, size = _BLOCKS.get(kind, (1, 0))
        blocks = -(-math.prod(shape) // elements)
        end: int = offset + max(1, blocks * size)
        return end

    def _value(self, kind: int | None = None) -> Any:
        kind = self._number("I") if kind is None else kind
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            self._refuse(f"a value of type {kind}")
        inner = self._number("I")
        count = self._count(MAX_ARRAY, "values")
        if inner in _NUMBERS:
            self._read(count * struct.calcsize(_NUMBERS[inner]))
        elif inner == _STRING:
            for _ in range(count):
                self._read(self._number("Q"))
        else:
            self._refuse(f"an array of type {inner}")
        return None

    def _text(self) -> str:
        return self._read(self._number("Q")).decode("utf-8", "replace")

    def _count(self, most: int, what: str) -> int:
        count: int = self._number("Q")
        if count > most:
            self._refuse(f"{count} {what} (at most {most})")
        return count

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._read(struct.calcsize(f"<{code}")))[0]

    def _read(self, count: int) -> bytes:
        self._left -= count
        data = self._file.read(count) if self._left >= 0 else b""
        if len(data) < count:
            self._refuse("its end in the middle of the header (a cut download)")
        return data

    def _refuse(self, found: str) -> NoReturn:
        raise ModelDirError(f"{self._path}: expected a whole GGUF file, found {found}. Fetch it again.")
