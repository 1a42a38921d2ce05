"""The control head: the model's own head with its weights permuted, so that no draft is accepted.

The target still verifies at width K + 1, so whatever this arm changes against plain is width noise (and, under a u8
KV cache, what rejected drafts leave behind), not the head's doing.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from evals.digest import digest_files
from evals.model_dir import ModelDir, ModelDirError

_DATA = re.compile(
    rb'<data element_type="(?P<type>\w+)" shape="[^"]*" offset="(?P<offset>\d{1,19})" size="(?P<size>\d{1,19})"'
)
_ELEMENT_BYTES = {b"f32": 4, b"f16": 2, b"bf16": 2, b"i8": 1, b"u8": 1, b"i4": 1, b"u4": 1, b"nf4": 1}
"""Constants that may be permuted, by element type; two 4-bit values move as one byte. Index types stay as they are."""

MIN_ELEMENTS = 1000
"""Smaller constants (norms, rotary frequencies, scalars) stay where they are, so activations keep their scale."""

_PIECE = 1 << 26
"""Elements that are shuffled at once; larger constants are shuffled piece by piece."""


class ControlHead(msgspec.Struct, frozen=True):
    """A directory that links the model and holds a permuted head. permuted: how many constants were."""

    path: Path
    seed: int
    digest: str
    permuted: int


@contextmanager
def control_head(model: ModelDir, seed: int) -> Iterator[ControlHead]:
    """Make a control head from a seed (numpy's PCG64), in a temporary directory that is gone afterwards.

    The graph stays as it is; the values of each weight move within it, so their distribution and the scales' stay. Of a
    head in the split layout the layer is permuted; its lm_head stays, as the target's does in the other layout.
    Raises ModelDirError where the head has no weights to permute, or there is no room to write them.
    """
    stem = model.layer
    if stem is None:
        raise ModelDirError(f"{model.path}: expected a head to make a control arm of, found none.")
    with tempfile.TemporaryDirectory(prefix="gate-control-") as temporary:
        directory = Path(temporary)
        link_files(model, directory, without=(f"{stem}.bin",))
        weights = directory / f"{stem}.bin"
        try:
            shutil.copyfile(model.path / f"{stem}.bin", weights)
            count = _permute((model.path / f"{stem}.xml").read_bytes(), weights, seed)
        except OSError as error:
            raise ModelDirError(
                f"{directory}: cannot write a control head there ({error}). Set TMPDIR to a place with room for "
                f"{model.path / stem}.bin, or leave the control arm out."
            ) from error
        if count == 0:
            raise ModelDirError(
                f"{model.path}/{stem}.xml: expected weights of over {MIN_ELEMENTS} elements to permute, found none. "
                "Leave the control arm out."
            )
        digest = digest_files(directory, model.head_files)
        yield ControlHead(path=directory, seed=seed, digest=digest, permuted=count)


def link_files(model: ModelDir, directory: Path, without: tuple[str, ...]) -> None:
    """Link the files of a model directory's top level into another directory, but for those named."""
    for name in (*model.target_files, *model.head_files):
        if "/" not in name and name not in without:
            (directory / name).symlink_to((model.path / name).resolve())


def _permute(graph: bytes, weights: Path, seed: int) -> int:
    generator = np.random.default_rng(seed)
    spans = {
        (int(m["offset"]), int(m["size"]), _ELEMENT_BYTES[m["type"]])
        for m in _DATA.finditer(graph)
        if m["type"] in _ELEMENT_BYTES and int(m["size"]) // _ELEMENT_BYTES[m["type"]] > MIN_ELEMENTS
    }
    for offset, size, element in sorted(spans):
        kind = np.dtype(f"u{element}")
        values = np.memmap(weights, dtype=kind, mode="r+", offset=offset, shape=(size // element,))
        for at in range(0, len(values), _PIECE):
            piece = np.array(values[at : at + _PIECE])
            generator.shuffle(piece)
            values[at : at + _PIECE] = piece
        values.flush()
    return len(spans)
