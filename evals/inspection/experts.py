"""Experts of a mixture: how many, how many are chosen, and what that makes of the bytes that a draft reads.

A head that computes all of its 256 experts reads 1.69 GB a draft (arcint's head card) and loses to plain decoding. The
exported graph shows every expert computed in either case; which it will be, the device decides when it compiles
(shared/notes/openvino.md), so without a device the answer is "unknown".
"""

from __future__ import annotations

from collections import Counter

from evals.inspection.graph import Graph
from evals.inspection.types import Experts
from evals.inspection.values import read_values
from evals.inspection.weights import Weight, constant_behind


def find_experts(graph: Graph, weights: tuple[Weight, ...]) -> Experts | None:
    """Stacked weights [experts, …] of matrix products in a graph that picks some with TopK; None where there are none.

    Raises ModelDirError where the weights file can't be read.
    """
    picks = [key for key, kind in graph.types.items() if kind == "TopK"]
    stacked = [weight for weight in weights if weight.used_by("MatMul") and _rank(weight) >= 3]
    stacked = [weight for weight in stacked if weight.const.shape[0] > 1]
    if not picks or not stacked:
        return None
    count = Counter(weight.const.shape[0] for weight in stacked).most_common(1)[0][0]
    size = sum(weight.bytes for weight in stacked if weight.const.shape[0] == count)
    chosen = next((k for key in picks if (k := _chosen(graph, key)) is not None and k <= count), None)
    return Experts(
        count=count,
        chosen=chosen,
        bytes_all=size,
        bytes_chosen=None if chosen is None else size * chosen // count,
    )


def _rank(weight: Weight) -> int:
    """Sides of a weight as it is multiplied, its groups put together."""
    return len(weight.const.shape) - (weight.group is not None and weight.group > 0)


def _chosen(graph: Graph, key: str) -> int | None:
    for port, source in graph.inputs.get(key, []):
        const = constant_behind(graph, source)
        if port == 1 and const is not None and const.elements == 1:
            value = read_values(graph, const)
            if value is not None and 1 <= value[0] < 1 << 16:
                return int(value[0])
    return None
