"""Changes to graphs that have been read: paged attention, logits of chosen rows, the hidden state as an output.

The transformation is the one that openvino-genai applies to a target and to an MTP layer before it serves them. Only
children import this module's caller; openvino itself is imported when a function is called.
"""

from __future__ import annotations

from typing import Any

ROWS = "rows"
"""Input of a graph changed by `pick_rows`: indices of the fed tokens whose logits are wanted, i64 [rows]."""

HIDDEN = "last_hidden_state"

_AFTER_MATMUL = {"Convert", "Add", "Multiply", "Divide", "Tanh", "Reshape", "Unsqueeze", "Squeeze"}
_FAR = 12


class GraftError(RuntimeError):
    """A graph that isn't built as expected: says what was looked for."""


def page(graph: Any) -> None:
    """Transform a graph for paged attention, in place.

    Exported heads round their key-value cache through a lower precision and back; the pattern isn't recognised with
    that in the way, so such pairs of conversions are taken out first (as openvino-genai does).
    Raises GraftError where nothing in the graph became paged.
    """
    from openvino._offline_transformations import paged_attention_transformation

    for node in graph.get_ordered_ops():
        if node.get_type_name() != "Convert":
            continue
        inner = node.input_value(0).get_node()
        if inner.get_type_name() != "Convert":
            continue
        source = inner.input_value(0)
        if source.get_element_type() == node.get_output_element_type(0):
            for reader in list(node.output(0).get_target_inputs()):
                reader.replace_source_output(source)
    paged_attention_transformation(graph)
    if not any("block_indices" in port.get_names() for port in graph.inputs):
        raise GraftError("paged attention: no attention with a key-value cache was recognised in the graph")


def pick_rows(graph: Any, *, hidden: bool) -> None:
    """Have a paged target compute logits only for the rows asked for (input `ROWS`), in place.

    A prompt's logits would take tokens × vocabulary × 4 bytes. hidden: give what goes into the lm_head (the final
    norm's output) as a second output [tokens, 1, hidden size], of all tokens. Raises GraftError without an lm_head.
    """
    import numpy as np
    from openvino import opset13 as ops

    matmul = _lm_head(graph)
    state = matmul.input_value(0)
    rows = ops.parameter([-1], np.int64, name=ROWS)
    rows.output(0).set_names({ROWS})
    matmul.input(0).replace_source_output(ops.gather(state, rows, ops.constant(0)).output(0))
    graph.add_parameters([rows])
    if hidden:
        result = ops.result(state)
        result.output(0).set_names({HIDDEN})
        graph.add_results([result])
    graph.validate_nodes_and_infer_types()


def _lm_head(graph: Any) -> Any:
    """The matrix product that makes the logits."""
    node = _logits(graph)
    for _ in range(_FAR):
        node = node.input_value(0).get_node()
        if node.get_type_name() == "MatMul":
            return node
        if node.get_type_name() not in _AFTER_MATMUL:
            break
    raise GraftError(
        f"the target's lm_head: expected a MatMul before the logits, found {node.get_type_name()}"
    )


def _logits(graph: Any) -> Any:
    results = graph.get_results()
    named = [result for result in results if "logits" in result.output(0).get_names()]
    return (named or results)[0]
