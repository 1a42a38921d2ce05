"""The layer's feed-forward part: one gated one, or a mixture of experts with a shared one beside.

The mixture is written as the exporter writes it, every expert over every token and then weighted: the CPU plug-in turns
exactly this pattern into a product that gathers the chosen experts (GatherMatmul) when it compiles the graph, and
leaves it dense when one operation is put in between. Picking the weights in the graph instead would copy them per
token, which a prompt of a thousand tokens can't pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evals.headbuild.nodes import Node, integers, joined, product, side, swish

if TYPE_CHECKING:
    from evals.headbuild.checkpoint import Checkpoint
    from evals.headbuild.weights import Weights


def feed_forward(x: Node, checkpoint: Checkpoint, weights: Weights) -> Node:
    """x [B, S, H], normed → [B, S, H]. Raises ModelDirError."""
    if checkpoint.experts:
        return _mixture(x, checkpoint, weights)
    return _gated(x, "layers.0.mlp.", weights)


def _gated(x: Node, name: str, weights: Weights) -> Node:
    from openvino import opset13

    gate = swish(product(x, weights.matrix(f"{name}gate_proj.weight")))
    up = product(x, weights.matrix(f"{name}up_proj.weight"))
    return product(opset13.multiply(gate, up), weights.matrix(f"{name}down_proj.weight"))


def _mixture(x: Node, checkpoint: Checkpoint, weights: Weights) -> Node:
    from openvino import opset13

    count, hidden, name = checkpoint.experts, checkpoint.text.hidden_size, "layers.0.mlp."
    batch = side(x, 0)
    tokens = opset13.reshape(x, integers(-1, hidden), special_zero=False)
    shared = opset13.multiply(
        opset13.sigmoid(product(tokens, weights.matrix(f"{name}shared_expert_gate.weight"))),
        _gated(tokens, f"{name}shared_expert.", weights),
    )
    shared = opset13.reshape(shared, joined([batch, integers(-1, hidden)]), special_zero=False)
    tiled = opset13.reshape(
        opset13.tile(tokens, integers(count, 1)), integers(count, -1, hidden), special_zero=False
    )
    gate = swish(product(tiled, weights.stack("gate_proj")))
    inner = opset13.multiply(gate, product(tiled, weights.stack("up_proj")))
    each = opset13.reshape(
        product(inner, weights.stack("down_proj")),
        joined([integers(count), batch, integers(-1, hidden)]),
        special_zero=False,
    )
    shares = opset13.reshape(
        _routing(tokens, checkpoint, weights),
        joined([integers(count), batch, integers(-1)]),
        special_zero=False,
    )
    weighted = opset13.multiply(each, opset13.unsqueeze(shares, opset13.constant(np.int64(3))))
    mixed = opset13.add(shared, opset13.reduce_sum(weighted, integers(0), keep_dims=False))
    return opset13.reshape(mixed, integers(0, -1, hidden), special_zero=True)


def _routing(tokens: Node, checkpoint: Checkpoint, weights: Weights) -> Node:
    """Each expert's share of each token [experts, tokens]: the chosen ones' softmax, made to sum to one."""
    from openvino import opset13

    count, chosen = checkpoint.experts, checkpoint.text.num_experts_per_tok or 1
    scores = opset13.softmax(product(tokens, weights.matrix("layers.0.mlp.gate.weight")), axis=-1)
    best = opset13.topk(
        scores,
        opset13.constant(np.int64(chosen)),
        axis=-1,
        mode="max",
        sort="value",
        index_element_type="i64",
    )
    indices = opset13.convert(best.output(1), "i32")
    shares = opset13.divide(best.output(0), opset13.reduce_sum(best.output(0), integers(-1), keep_dims=True))
    zeros32, ones32 = np.zeros(2, dtype=np.int32), np.ones(2, dtype=np.int32)
    shares = opset13.slice(
        shares,
        opset13.constant(zeros32),
        opset13.shape_of(indices, output_type="i32"),
        opset13.constant(ones32),
        opset13.constant(np.array([0, 1], dtype=np.int32)),
    )
    none = opset13.broadcast(opset13.constant(np.float32(0)), joined([side(tokens, 0), integers(count)]))
    spread = opset13.scatter_elements_update(none, indices, shares, opset13.constant(np.int64(1)))
    return opset13.transpose(spread, opset13.constant(np.array([1, 0], dtype=np.int32)))
