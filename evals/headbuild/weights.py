"""The head's weights, read from the checkpoint one by one as the graph asks for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from evals.headbuild.nodes import Node
from evals.headbuild.tensors import Array, Tensor, read_tensor

if TYPE_CHECKING:
    from evals.headbuild.checkpoint import Checkpoint
    from evals.headbuild.formats import Format


class Weights:
    """Constants made of a checkpoint's tensors: matrices in a format, vectors (norms) in float32 in any case."""

    def __init__(self, checkpoint: Checkpoint, form: Format) -> None:
        self._tensors = checkpoint.tensors
        self._checkpoint = checkpoint
        self._form = form

    def vector(self, name: str) -> Array:
        """A vector as stored (norms: zero-centred). Raises ModelDirError."""
        return read_tensor(self._tensors[name], np.float32)

    def matrix(self, name: str) -> Node:
        """A matrix [out, in]. Raises ModelDirError."""
        return self._form.matrix(read_tensor(self._tensors[name], self._form.kind), f"self.{name}")

    def stack(self, which: str) -> Node:
        """The experts' gate_proj, up_proj [experts, inner, hidden] or down_proj [experts, hidden, inner], from one
        stack, one half of a stack, or one by one. Raises ModelDirError."""
        prefix = "layers.0.mlp.experts."
        if self._checkpoint.fused:
            parts = _halves(self._tensors, prefix, which)
        else:
            parts = [self._tensors[f"{prefix}{n}.{which}.weight"] for n in range(self._checkpoint.experts)]
        values = np.empty((len(parts), *parts[0].shape), self._form.kind)
        for place, tensor in zip(values, parts, strict=True):
            read_tensor(tensor, self._form.kind, place)
        return self._form.matrix(values, f"self.{prefix}{which}")


def _halves(tensors: dict[str, Tensor], prefix: str, which: str) -> list[Tensor]:
    """An expert's matrix each out of a stack; of gate_up_proj the first or the second half of its rows."""
    if which == "down_proj":
        whole = tensors[f"{prefix}down_proj"]
        return [_within(whole, number, 0, whole.shape[1]) for number in range(whole.shape[0])]
    whole = tensors[f"{prefix}gate_up_proj"]
    half = whole.shape[1] // 2
    first = 0 if which == "gate_proj" else half
    return [_within(whole, number, first, half) for number in range(whole.shape[0])]


def _within(stack: Tensor, number: int, row: int, rows: int) -> Tensor:
    """Rows of one matrix of a stack [count, rows, columns]."""
    width = stack.size // math.prod(stack.shape)
    offset = stack.offset + (number * stack.shape[1] + row) * stack.shape[2] * width
    shape = (rows, stack.shape[2])
    return msgspec.structs.replace(stack, shape=shape, offset=offset, size=rows * stack.shape[2] * width)
