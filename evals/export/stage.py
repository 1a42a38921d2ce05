"""A checkpoint as optimum-intel 2.2 can take it, where the given one fails or is misread: links and one file.

Two things it can't do. With fp32 it widens the body but takes `mtp.*` raw from the file, and ends with "Assign: input
bf16, variable f32". Experts of a head that are stored one by one it ignores silently: the head exported has random
ones. So the head's tensors are written anew, in float32 and stacked, and an index sends the exporter to them.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from evals.headbuild.checkpoint import INDEX, SINGLE, Checkpoint, weight_map
from evals.headbuild.tensors import Tensor, pieces

HEAD_FILE = "model-mtp.safetensors"
_RENAMED = "model-00001-of-00001.safetensors"
"""What the single file becomes: under its own name transformers would prefer it to the index."""


class Part(msgspec.Struct, frozen=True):
    """A tensor to write: its shape, and the tensors that it is put together from."""

    shape: tuple[int, ...]
    parts: list[Tensor]


def needs_staging(checkpoint: Checkpoint, weight_format: str) -> bool:
    """Whether the exporter would fail on this checkpoint, or misread it."""
    narrow = any(tensor.dtype != "F32" for tensor in checkpoint.tensors.values())
    return (weight_format == "fp32" and narrow) or (checkpoint.experts > 0 and not checkpoint.fused)


def stage(checkpoint: Checkpoint, into: Path) -> None:
    """Fill `into` with links to the checkpoint's files, an index, and the head's tensors. Raises ModelDirError."""
    named = weight_map(checkpoint.path)
    single = set(named.values()) == {SINGLE} and not (checkpoint.path / INDEX).is_file()
    for file in sorted(checkpoint.path.iterdir()):
        if file.name != INDEX and not file.name.startswith("."):
            (into / (_RENAMED if single and file.name == SINGLE else file.name)).symlink_to(file.absolute())
    made = _stacked(checkpoint)
    size = _write(into / HEAD_FILE, made)
    body = {name: _RENAMED if single else file for name, file in named.items() if not name.startswith("mtp.")}
    index = {"metadata": {"total_size": size}, "weight_map": {**body, **dict.fromkeys(made, HEAD_FILE)}}
    (into / INDEX).write_bytes(msgspec.json.encode(index))


def _stacked(checkpoint: Checkpoint) -> dict[str, Part]:
    """The head's tensors by full name, experts as two stacks."""
    prefix = "layers.0.mlp.experts."
    loose = not checkpoint.fused
    made = {
        f"mtp.{name}": Part(tensor.shape, [tensor])
        for name, tensor in checkpoint.tensors.items()
        if not (loose and name.startswith(prefix))
    }
    if checkpoint.experts and loose:
        text, count = checkpoint.text, checkpoint.experts
        inner, hidden = text.moe_intermediate_size or 0, text.hidden_size

        def each(*which: str) -> list[Tensor]:
            return [checkpoint.tensors[f"{prefix}{n}.{w}_proj.weight"] for n in range(count) for w in which]

        made[f"mtp.{prefix}gate_up_proj"] = Part((count, 2 * inner, hidden), each("gate", "up"))
        made[f"mtp.{prefix}down_proj"] = Part((count, hidden, inner), each("down"))
    return made


def _write(file: Path, made: dict[str, Part]) -> int:
    """A safetensors file of these, in float32, written in pieces. Returns the bytes of its tensors."""
    header, at = {}, 0
    for name, part in made.items():
        size = 4 * math.prod(part.shape)
        header[name] = {"dtype": "F32", "shape": part.shape, "data_offsets": (at, at + size)}
        at += size
    said = msgspec.json.encode(header)
    with file.open("wb") as out:
        out.write(len(said).to_bytes(8, "little") + said)
        for part in made.values():
            for tensor in part.parts:
                for values in pieces(tensor):
                    out.write(values.astype("<f4").tobytes())
    return at
