"""The head's one decoder layer as a graph: hidden state and next embedding in, hidden state out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evals.headbuild.attention import Inputs, attention
from evals.headbuild.mlp import feed_forward
from evals.headbuild.nodes import Node, product, rms_norm
from evals.headbuild.weights import Weights

if TYPE_CHECKING:
    from evals.headbuild.checkpoint import Checkpoint
    from evals.headbuild.formats import Format

INPUTS = ("hidden_states", "inputs_embeds", "attention_mask", "position_ids", "beam_idx")
OUTPUT = "last_hidden_state"


def build_layer(checkpoint: Checkpoint, form: Format) -> Any:
    """An openvino.Model with the interface of optimum-intel's head, its matrices in a format.

    hidden_states [B, S, H]: the target's, after its last norm, at positions t; inputs_embeds [B, S, H]: of the tokens
    at t + 1; attention_mask [B, L] and position_ids [B, S]: int64; beam_idx [B]: int32. last_hidden_state [B, S, H]:
    for the target's lm_head. The embedding comes first in the concatenation. Raises ModelDirError.
    """
    import openvino
    from openvino import opset13

    text, weights = checkpoint.text, Weights(checkpoint, form)

    def norm(x: Node, name: str) -> Node:
        return rms_norm(x, weights.vector(name), text.rms_norm_eps, f"self.{name}")

    floats, whole = openvino.Type.f32, openvino.Type.i64
    hidden = _parameter("hidden_states", floats, [-1, -1, text.hidden_size])
    embeds = _parameter("inputs_embeds", floats, [-1, -1, text.hidden_size])
    mask = _parameter("attention_mask", whole, [-1, -1])
    positions = _parameter("position_ids", whole, [-1, -1])
    beams = _parameter("beam_idx", openvino.Type.i32, [-1])
    both = opset13.concat(
        [norm(embeds, "pre_fc_norm_embedding.weight"), norm(hidden, "pre_fc_norm_hidden.weight")], axis=-1
    )
    x = product(both, weights.matrix("fc.weight"))
    normed = norm(x, "layers.0.input_layernorm.weight")
    mixed, kept = attention(normed, Inputs(mask, positions, beams), text, weights)
    x = opset13.add(x, mixed)
    x = opset13.add(x, feed_forward(norm(x, "layers.0.post_attention_layernorm.weight"), checkpoint, weights))
    result = opset13.result(norm(x, "norm.weight"))
    result.get_output_tensor(0).set_names({OUTPUT})
    return openvino.Model([result], kept, [hidden, embeds, mask, positions, beams], "mtp_layer")


def _parameter(name: str, kind: Any, shape: list[int]) -> Node:
    from openvino import PartialShape, opset13

    node = opset13.parameter(PartialShape(shape), kind, name=name)
    node.output(0).get_tensor().set_names({name})
    return node
