"""Graph nodes that a decoder layer is put together from, in the shapes in which optimum-intel's export has them.

OpenVINO's plug-ins recognise operations by their pattern (RMS, RoPE, GatherMatmul, attention for paging), so a pattern
that the exporter's graphs have is kept even where fewer nodes would compute the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evals.headbuild.tensors import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

Node = Any
"""An openvino.Node; the package has no types."""


def constant(values: Array, name: str) -> Node:
    """A constant over an array's own memory (not copied; the node keeps it alive)."""
    from openvino import op

    node = op.Constant(np.ascontiguousarray(values), shared_memory=True)
    node.set_friendly_name(name)
    return node


def integers(*values: int) -> Node:
    """A vector of int64."""
    from openvino import opset13

    return opset13.constant(np.array(values, dtype=np.int64))


def number(value: float, rank: int) -> Node:
    """A float32 scalar as a tensor of ones' sides."""
    from openvino import opset13

    return opset13.constant(np.full((1,) * rank, value, dtype=np.float32))


def weight(values: Array, name: str) -> Node:
    """A matrix as float32: itself, or a float16 constant behind a conversion that plug-ins know as decompression.

    The mark can't be set from Python, so that a node which OpenVINO's own compression has marked is taken over.
    """
    from openvino import Model, opset13
    from openvino._offline_transformations import compress_model_transformation

    if values.dtype == np.float32:
        return constant(values, name)
    result = opset13.result(opset13.constant(np.ones((1, 1), dtype=np.float32)))
    donor = Model([result], [])
    compress_model_transformation(donor)
    convert = result.input_value(0).get_node()
    result.input(0).replace_source_output(result.input_value(0).get_node().input_value(0))
    convert.input(0).replace_source_output(constant(values, f"{name}_compressed").output(0))
    convert.validate_and_infer_types()
    convert.output(0).get_tensor().set_names(set())
    convert.set_friendly_name(name)
    return convert


def product(x: Node, matrix: Node) -> Node:
    """x [..., in] times a matrix [out, in], or a stack of them, transposed."""
    from openvino import opset13

    return opset13.matmul(x, matrix, transpose_a=False, transpose_b=True)


def rms_norm(x: Node, stored: Array, eps: float, name: str, rank: int = 3) -> Node:
    """Root-mean-square norm over the last side of x (of `rank` sides), scaled by 1 + `stored`.

    Checkpoints of this family store norms zero-centred (transformers, Qwen3_5RMSNorm.forward).
    """
    from openvino import opset13

    mean = opset13.reduce_mean(opset13.power(x, number(2, rank)), integers(-1), keep_dims=True)
    root = opset13.sqrt(opset13.add(mean, number(eps, rank)))
    normed = opset13.multiply(x, opset13.divide(number(1, rank), root))
    scale = (1.0 + stored.astype(np.float32)).reshape((1,) * (rank - 1) + (-1,))
    return opset13.multiply(normed, constant(scale, name))


def part(x: Node, begin: int, end: int) -> Node:
    """x[..., begin:end]."""
    from openvino import opset13

    return opset13.slice(x, integers(begin), integers(end), integers(1), integers(-1))


def rotate(x: Node, cos: Node, sin: Node, width: int) -> Node:
    """Rotate the first `width` channels of x [B, heads, S, D]; channel i pairs with channel i + width / 2.

    That pairing (not neighbours) is transformers' rotate_half; cos, sin: [B, 1, S, width], both halves alike.
    """
    from openvino import opset13

    turned, rest = part(x, 0, width), x.get_output_partial_shape(0)[3].get_length() - width
    half = width // 2
    swapped = opset13.concat(
        [opset13.multiply(part(turned, half, 1 << 62), number(-1, 4)), part(turned, 0, half)], axis=-1
    )
    done = opset13.add(opset13.multiply(turned, cos), opset13.multiply(swapped, sin))
    return opset13.concat([done, part(x, width, 1 << 62)], axis=-1) if rest else done


def swish(x: Node) -> Node:
    """x times its sigmoid, as one operation without a second input (opset13.swish adds one)."""
    from openvino.utils.node_factory import NodeFactory

    return NodeFactory("opset4").create("Swish", [x.output(0)], {})


def side(x: Node, axis: int) -> Node:
    """The length of a side of x, as a vector of one int64."""
    from openvino import opset13

    return opset13.gather(opset13.shape_of(x), integers(axis), opset13.constant(np.int64(0)))


def joined(parts: Sequence[Node]) -> Node:
    """Vectors put together to a shape."""
    from openvino import opset13

    return opset13.concat(list(parts), axis=0)
