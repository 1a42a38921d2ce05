"""The layer's attention: gated, with its own key and value cache as states of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from evals.headbuild.nodes import Node, constant, integers, joined, number, product, rms_norm, rotate, side

if TYPE_CHECKING:
    from evals.headbuild.checkpoint import TextConfig
    from evals.headbuild.weights import Weights

STATES = (
    "past_key_values.0.keypresent_key_values.0.key",
    "past_key_values.0.valuepresent_key_values.0.value",
)
"""Names of the states, as optimum-intel gives them."""

FAR = float(np.finfo(np.float32).min)


class Inputs(msgspec.Struct, frozen=True):
    """The graph's parameters that attention needs. mask [B, L], positions [B, S]: int64; beams [B]: int32."""

    mask: Node
    positions: Node
    beams: Node


def attention(x: Node, inputs: Inputs, text: TextConfig, weights: Weights) -> tuple[Node, list[Node]]:
    """(output [B, S, H], the cache's assignments). x: [B, S, H], normed.

    q_proj gives a head's query and its gate next to each other; the gate is a sigmoid; query and key are normed before
    they are rotated (transformers, Qwen3_5Attention.forward).
    """
    from openvino import opset13

    heads, width, name = text.num_attention_heads, text.head_width, "layers.0.self_attn."
    both = opset13.reshape(
        product(x, weights.matrix(f"{name}q_proj.weight")),
        integers(0, 0, heads, 2 * width),
        special_zero=True,
    )
    split = opset13.variadic_split(both, integers(3), integers(width, width))
    gate = opset13.reshape(split.output(1), integers(0, 0, heads * width), special_zero=True)
    key = _heads(product(x, weights.matrix(f"{name}k_proj.weight")), text.kv_heads, width)
    value = _heads(product(x, weights.matrix(f"{name}v_proj.weight")), text.kv_heads, width)
    order = opset13.constant(np.array([0, 2, 1, 3], dtype=np.int32))
    query = _normed(split.output(0), f"{name}q_norm.weight", text, weights)
    query = opset13.transpose(query, order)
    key = opset13.transpose(_normed(key, f"{name}k_norm.weight", text, weights), order)
    cos, sin = _angles(inputs.positions, text)
    query = rotate(query, cos, sin, text.rotary)
    key = rotate(key, cos, sin, text.rotary)
    keys, past, key_kept = _cached(key, inputs.beams, STATES[0], text, x)
    values, _, value_kept = _cached(opset13.transpose(value, order), inputs.beams, STATES[1], text, x)
    scale = opset13.constant(np.float32(width**-0.5))
    mask = _mask(inputs.mask, side(past, 2), side(x, 1))
    mixed = opset13.scaled_dot_product_attention(
        query, _repeated(keys, text), _repeated(values, text), mask, scale, causal=False
    )
    mixed = opset13.reshape(opset13.transpose(mixed, order), integers(0, 0, heads * width), special_zero=True)
    out = product(opset13.multiply(mixed, opset13.sigmoid(gate)), weights.matrix(f"{name}o_proj.weight"))
    return out, [key_kept, value_kept]


def _heads(x: Node, heads: int, width: int) -> Node:
    from openvino import opset13

    return opset13.reshape(x, integers(0, 0, heads, width), special_zero=True)


def _normed(x: Node, name: str, text: TextConfig, weights: Weights) -> Node:
    return rms_norm(x, weights.vector(name), text.rms_norm_eps, f"self.{name}", rank=4)


def _angles(positions: Node, text: TextConfig) -> tuple[Node, Node]:
    """cos and sin [B, 1, S, rotary]. Text has the same position in all three rows of mrope, which makes it plain."""
    from openvino import opset13

    steps = np.arange(0, text.rotary, 2, dtype=np.float32) / np.float32(text.rotary)
    frequencies = (1.0 / np.float32(text.rope.rope_theta) ** steps).astype(np.float32).reshape(1, -1, 1)
    row = opset13.convert(opset13.unsqueeze(positions, integers(1)), "f32")
    angles = opset13.matmul(constant(frequencies, "rotary_emb.inv_freq"), row, False, False)
    angles = opset13.transpose(angles, opset13.constant(np.array([0, 2, 1], dtype=np.int32)))
    angles = opset13.concat([angles, angles], axis=-1)
    one = opset13.constant(np.int64(1))
    return opset13.unsqueeze(opset13.cos(angles), one), opset13.unsqueeze(opset13.sin(angles), one)


def _cached(new: Node, beams: Node, name: str, text: TextConfig, x: Node) -> tuple[Node, Node, Node]:
    """(past and new [B, heads, L, D], past, the assignment that keeps them)."""
    import openvino
    from openvino import opset13
    from openvino.op.util import Variable, VariableInfo

    info = VariableInfo()
    info.data_shape = openvino.PartialShape([-1, text.kv_heads, -1, text.head_width])
    info.data_type = openvino.Type.f32
    info.variable_id = name
    variable = Variable(info)
    shape = joined([side(x, 0), integers(text.kv_heads), integers(0), integers(text.head_width)])
    empty = opset13.broadcast(opset13.constant(np.float32(0)), shape)
    past = opset13.gather(opset13.read_value(empty, variable), beams, opset13.constant(np.int64(0)))
    both = opset13.concat([past, new], axis=2)
    return both, past, opset13.assign(both, variable)


def _repeated(x: Node, text: TextConfig) -> Node:
    """Key or value heads [B, KV, L, D], each for the query heads that share it."""
    from openvino import opset13

    times = text.num_attention_heads // text.kv_heads
    wide = opset13.unsqueeze(x, opset13.constant(np.int64(2)))
    wide = opset13.broadcast(wide, integers(1, 1, times, 1, 1), broadcast_spec="BIDIRECTIONAL")
    return opset13.reshape(
        wide, integers(0, text.num_attention_heads, -1, text.head_width), special_zero=True
    )


def _mask(padding: Node, past: Node, new: Node) -> Node:
    """What is added to the scores [B, 1, S, past + S]: FAR where a key is padding or comes after the query."""
    from openvino import opset13

    zero, one = opset13.constant(np.int64(0)), opset13.constant(np.int64(1))
    past, new = opset13.squeeze(past, zero), opset13.squeeze(new, zero)
    length = opset13.add(past, new)
    keys = opset13.unsqueeze(opset13.range(zero, length, one, "i64"), zero)
    queries = opset13.add(opset13.unsqueeze(opset13.range(zero, new, one, "i64"), one), past)
    later = opset13.convert(
        opset13.unsqueeze(opset13.greater(keys, queries), opset13.constant(np.array([0, 1], dtype=np.int64))),
        "f32",
    )
    kept = opset13.unsqueeze(padding, opset13.constant(np.array([1, 2], dtype=np.int64)))
    kept = opset13.slice(kept, integers(0), opset13.unsqueeze(length, zero), integers(1), integers(-1))
    hidden = opset13.subtract(number(1, 4), opset13.convert(kept, "f32"))
    return opset13.add(opset13.multiply(later, number(FAR, 4)), opset13.multiply(hidden, number(FAR, 4)))
