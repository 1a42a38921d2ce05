"""How matrices are stored in the graph: 32 or 16 bits, or quantised by nncf.

nncf sees one matrix at a time. Given the whole graph it needs 2.8 times the head's memory; this way 1.5 are enough.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from typing import Any, Literal

import numpy as np

from evals.headbuild.nodes import Node, product, weight
from evals.headbuild.tensors import Array
from evals.model_dir import ModelDirError

WeightFormat = Literal["fp32", "fp16", "int8", "int4"]
GROUP = 64
BLOCK = 16 << 20
"""Bytes of a matrix that nncf gets at once; it needs some five times as many."""

_WIDE = ("mlp.gate.weight", "mlp.shared_expert_gate.weight")
"""Matrices that stay in 16 bits: a few rows that decide which experts are asked, or how much the shared one counts."""

_BACKUP = ("layers.0.mlp.down_proj.weight",)
"""Matrices that int4 leaves at int8: a dense layer's last, as in optimum-intel's exports."""


class NncfMissing(ModelDirError):
    """int8 and int4 need nncf, which the base install lacks."""


class Format:
    """What becomes of a matrix. name: as on the command line. group: columns that share a scale in int4."""

    def __init__(self, name: WeightFormat = "fp16", group: int = GROUP) -> None:
        """Raises NncfMissing where the format needs nncf and it can't be imported."""
        self._name = name
        self._group = group
        self.kind: type[np.floating[Any]] = np.float32 if name == "fp32" else np.float16
        if name in ("int8", "int4"):
            _require_nncf()

    def matrix(self, values: Array, name: str) -> Node:
        """A matrix [out, in], or a stack of them, as a node that gives float32."""
        if self._name in ("fp32", "fp16") or name.endswith(_WIDE):
            return weight(values, name)
        narrow = self._name == "int4" and not name.endswith(_BACKUP) and values.shape[-1] % self._group == 0
        return _quantised(values, name, self._group if narrow else None)


def _quantised(values: Array, name: str, group: int | None) -> Node:
    """int4 in groups, asymmetric; without a group int8, asymmetric, a scale per row.

    Rows don't depend on each other, so they are quantised in blocks, whose constants are then put together. A block has
    an even number of rows: two 4-bit values share a byte.
    """
    rows = max(2, BLOCK // max(values[0].nbytes, 1) // 2 * 2)
    pieces: list[list[Array]] = []
    for at in range(0, len(values), rows):
        chain = _behind(_by_nncf(values[at : at + rows], name, group))
        pieces.append([node.data.reshape(-1).view(np.uint8).copy() for node in chain if _is_constant(node)])
    constants = [node for node in chain if _is_constant(node)]
    for place, node in enumerate(constants):
        _replace(node, [piece[place] for piece in pieces], values.shape)
    for node in chain:
        if not _is_constant(node):
            node.validate_and_infer_types()
    return chain[-1]


def _by_nncf(values: Array, name: str, group: int | None) -> Node:
    """What nncf makes of a matrix: the last node of a chain from its constants to float32."""
    import openvino
    from openvino import opset13

    with contextlib.redirect_stdout(io.StringIO()):
        import nncf

        nncf.set_log_level(logging.ERROR)
        shape = openvino.PartialShape([*values.shape[:-2], -1, values.shape[-1]])
        x = opset13.parameter(shape, openvino.Type.f32)
        model = openvino.Model([opset13.result(product(x, weight(values, name)))], [x])
        if group is None:
            nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        else:
            nncf.compress_weights(
                model, mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=group, ratio=1.0, all_layers=True
            )
    return model.get_results()[0].input_value(0).get_node().input_value(1).get_node()


def _behind(node: Node) -> list[Node]:
    """A node and all behind it, each after what feeds it."""
    before = [node.input_value(port).get_node() for port in range(node.get_input_size())]
    return [*(each for one in before for each in _behind(one)), node]


def _is_constant(node: Node) -> bool:
    return bool(node.get_type_name() == "Constant")


def _replace(node: Node, pieces: list[Array], shape: tuple[int, ...]) -> None:
    """Put a block's constant in the whole matrix's place: its bytes joined, or the matrix's shape as a target."""
    import openvino
    from openvino import op

    kind = node.get_output_element_type(0)
    if kind == openvino.Type.i64:
        whole = op.Constant(np.array(shape, dtype=np.int64))
    else:
        sides = [shape[0], *node.get_output_shape(0)[1:]]
        tensor = openvino.Tensor(kind, openvino.Shape(sides))  # owns its memory, a view over an array doesn't
        np.concatenate(pieces, out=tensor.data.reshape(-1).view(np.uint8))
        whole = op.Constant(tensor, shared_memory=True)
    whole.set_friendly_name(node.get_friendly_name())
    for user in node.output(0).get_target_inputs():
        user.replace_source_output(whole.output(0))


def _require_nncf() -> None:
    from importlib.util import find_spec

    if find_spec("nncf") is None:
        raise NncfMissing(
            "expected nncf, which quantises to int8 and int4, found it not installed: pip install "
            "'mtp-gate[heads]', or take --weight-format fp16."
        )
    os.environ.setdefault("NNCF_CI", "1")  # no usage statistics are sent
