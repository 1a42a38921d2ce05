"""EAGLE-3 and DFlash drafts of a few kilobytes of their own, cut out of a real target: no training, honest interfaces.

Both read the target's hidden states after three of its layers. EAGLE-3's keeps the target's first layer with its cache;
DFlash's has no layer at all. They draft badly, and all that they draft is verified.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as ops

from evals.drafters import DrafterKind

LAYERS = (2, 15, 27)
"""Layers whose hidden states a draft reads: openvino-genai's own choice for a target of 30."""


def save_int4(source: Path, target: Path) -> None:
    """A copy of a model whose weights nncf compressed anew: unfolded, then 4 bits symmetric in groups of 64."""
    import nncf
    from openvino.passes import ConstantFolding, Manager

    model = openvino.Core().read_model(source / "openvino_model.xml")
    unfold = Manager()
    unfold.register_pass(ConstantFolding())
    unfold.run_passes(model)
    mode = nncf.CompressWeightsMode.INT4_SYM
    target.mkdir()
    openvino.save_model(
        nncf.compress_weights(model, mode=mode, group_size=64, all_layers=True), target / "openvino_model.xml"
    )
    for file in source.iterdir():
        if file.stem != "openvino_model":
            (target / file.name).write_bytes(file.read_bytes())


def name_layers(source: Path, target: Path) -> None:
    """Copy a target so that its layers' outputs are named as optimum's exports name them (GGUF's aren't)."""
    target.mkdir()
    for file in source.iterdir():
        if file.stem != "openvino_model":
            (target / file.name).write_bytes(file.read_bytes())
    model = openvino.Core().read_model(source / "openvino_model.xml")
    for number, node in enumerate(_residuals(model)):
        node.set_friendly_name(f"model.layers.{number}/add")
    openvino.save_model(model, target / "openvino_model.xml", compress_to_fp16=False)
    (target / "config.json").write_text('{"num_hidden_layers": 30}')


def make_draft(source: Path, draft: Path, kind: DrafterKind) -> None:
    """Write a draft of that kind for the target in `source`."""
    model = openvino.Core().read_model(source / "openvino_model.xml")
    layers = _residuals(model)
    embedding = next(
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Gather" and _is_table(node.input(0))
    )
    size = embedding.output(0).get_partial_shape()[2].get_length()
    wide = len(LAYERS) * size
    hidden = ops.parameter(
        [-1, -1, -1] if kind == "eagle3" else [1, -1, wide], np.float32, name="hidden_states"
    )
    hidden.output(0).set_names({"hidden_states"})
    last_layer = np.concatenate([np.zeros((size, wide - size)), np.eye(size)], axis=1).astype(np.float32)
    mixed = ops.matmul(hidden, ops.constant(last_layer), False, True)
    if kind == "dflash":
        mixed = ops.gather(mixed, ops.constant(np.array([-1])), ops.constant(np.array(1)))
    embedded = list(embedding.output(0).get_target_inputs())
    finished = list(layers[-1].output(0).get_target_inputs())
    both = ops.add(embedding.output(0), mixed.output(0))
    kept = both
    if kind == "eagle3":
        _rewire(embedded, both)
        kept = layers[0]
        kept.set_friendly_name("midlayer/add")
    _rewire(finished, kept)
    _drop_unused_state(model)
    model.add_parameters([hidden])
    model.set_rt_info("True", f"{kind}_mode")
    if kind == "dflash":
        model.set_rt_info("0", ["dflash", "mask_token_id"])
        model.set_rt_info(",".join(map(str, LAYERS)), ["dflash", "target_layer_ids"])
    model.validate_nodes_and_infer_types()
    draft.mkdir()
    openvino.save_model(model, draft / "openvino_model.xml", compress_to_fp16=False)


def _residuals(model: Any) -> list[Any]:
    """The additions that end each layer: the second summand is a product of a gated product."""
    return [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Add"
        and (summand := _source(node.input(1))).get_type_name() == "MatMul"
        and _source(summand.input(0)).get_type_name() == "Multiply"
    ]


def _source(port: Any) -> Any:
    return port.get_source_output().get_node()


def _is_table(port: Any) -> bool:
    shape = port.get_source_output().get_partial_shape()
    return shape.rank.is_static and len(shape) == 2 and shape[0].is_static and shape[0].get_length() > 1000


def _rewire(inputs: list[Any], node: Any) -> None:
    for port in inputs:
        port.replace_source_output(node.output(0))


def _drop_unused_state(model: Any) -> None:
    """Remove the caches of the layers that were cut away."""
    seen: set[str] = set()
    pending = [_source(result.input(0)) for result in model.get_results()]
    while pending:
        node = pending.pop()
        if node.get_friendly_name() not in seen:
            seen.add(node.get_friendly_name())
            pending += [_source(port) for port in node.inputs()]
    used = {
        node.get_attributes()["variable_id"]
        for node in model.get_ordered_ops()
        if node.get_type_name() == "ReadValue" and node.get_friendly_name() in seen
    }
    for sink in model.get_sinks():
        if sink.get_attributes()["variable_id"] not in used:
            model.remove_sink(sink)
    for variable in model.get_variables():
        if variable.info.variable_id not in used:
            model.remove_variable(variable)
