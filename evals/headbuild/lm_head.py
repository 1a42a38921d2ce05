"""The target's lm_head cut out as a graph of its own, constants and quantisation as they are.

Reading it anew from the checkpoint would widen 248,320 rows to 16 bits, and would not be what the target answers with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evals.model_dir import ModelDirError

INPUT = "hidden_states"
OUTPUT = "logits"
_STEPS = 8
"""Operations between the product and the result that are looked through: conversions, a bias, a scale."""


def cut_lm_head(target: Path) -> Any:
    """An openvino.Model: hidden_states [B, S, H] → logits [B, S, V]. target: the language model's xml.

    Weights stay mapped from the target's file. Raises ModelDirError where no product with constant weights ends it.
    """
    import openvino
    from openvino import opset13

    model = read_model(target)
    result = _result(model, target)
    product = _product(result, target)
    shape = product.input_value(0).get_partial_shape()
    if product.input_value(0).get_element_type() != openvino.Type.f32 or len(shape) != 3:
        raise ModelDirError(f"{target}: expected the lm_head to take f32 of three sides, found {shape}.")
    hidden = opset13.parameter(
        openvino.PartialShape([-1, -1, shape[2].get_length()]), openvino.Type.f32, name=INPUT
    )
    hidden.output(0).get_tensor().set_names({INPUT})
    product.input(0).replace_source_output(hidden.output(0))
    logits = opset13.result(result.input_value(0))
    logits.get_output_tensor(0).set_names({OUTPUT})
    try:
        return openvino.Model([logits], [hidden], "mtp_lm_head")
    except RuntimeError as error:
        raise ModelDirError(f"{target}: its lm_head can't be cut out: {str(error)[-200:]}") from error


def read_model(file: Path) -> Any:
    """Read a graph, weights mapped. Raises ModelDirError for one that OpenVINO refuses."""
    import openvino

    try:
        return openvino.Core().read_model(str(file))
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1][:200]
        raise ModelDirError(
            f"{file}: expected an OpenVINO graph, found one that can't be read: {last}"
        ) from error


def _result(model: Any, target: Path) -> Any:
    for result in model.get_results():
        if OUTPUT in result.get_output_tensor(0).get_names():
            return result
    names = [result.get_output_tensor(0).get_names() for result in model.get_results()]
    raise ModelDirError(
        f"{target}: expected an output named {OUTPUT}, found {names}. Give an exported target."
    )


def _product(result: Any, target: Path) -> Any:
    """The matrix product with constant weights before a result."""
    node = result.input_value(0).get_node()
    for _ in range(_STEPS):
        if node.get_type_name() == "MatMul":
            if _is_constant(node.input_value(1).get_node()):
                return node
            break
        if node.get_input_size() == 0:
            break
        node = node.input_value(0).get_node()
    raise ModelDirError(
        f"{target}: expected a product with constant weights before {OUTPUT}, found {node.get_type_name()} "
        f"({node.get_friendly_name()[:80]}). Its lm_head isn't one that can be cut out."
    )


def _is_constant(node: Any) -> bool:
    """Whether nothing but constants lies behind a node."""
    pending, seen = [node], 0
    while pending and seen < 64:
        seen += 1
        at = pending.pop()
        if at.get_input_size() == 0 and at.get_type_name() != "Constant":
            return False
        pending += [at.input_value(port).get_node() for port in range(at.get_input_size())]
    return not pending
