"""Facts that take more than one look: what a part is, what a draft reads, whether embeddings are tied."""

from __future__ import annotations

import msgspec
import numpy as np

from evals.inspection.experts import find_experts
from evals.inspection.graph import Graph
from evals.inspection.pairing import Fit
from evals.inspection.types import DraftCost, Experts, Part, Problem, Role
from evals.inspection.values import read_row
from evals.inspection.versions import made_with
from evals.inspection.weights import Weight, find_weights, lm_head, schemes

_COMPRESSION = "nncf/weight_compression/"
_DECLARED = ("mode", "group_size", "backup_mode", "ratio")
LAYERS = "hidden_states_decoder_layers"

ROWS = 16
SAME, OTHER = 0.9, 0.5
"""Cosine of a token's embedding and its lm_head row: about 1 for tied weights however quantised, about 0 for others."""


def describe(stem: str, graph: Graph, role: Role) -> Part:
    """A part's ports, states and weights. Raises ModelDirError where the weights file can't be read."""
    weights = find_weights(graph)
    info = graph.info
    return Part(
        name=stem,
        role=role,
        bytes=graph.needed,
        inputs=graph.parameters,
        outputs=graph.results,
        states=graph.states,
        parameters=sum(weight.const.elements for weight in weights),
        schemes=schemes(weights),
        declared={key: info[_COMPRESSION + key][:40] for key in _DECLARED if _COMPRESSION + key in info},
        versions=made_with(graph),
        experts=find_experts(graph, weights),
    )


def part_problems(part: Part) -> list[Problem]:
    """An error for a target or head without a weight; a note where a quantisation is declared that no weight has."""
    if part.role in ("target", "head") and not part.schemes:
        message = (
            "none of its constants is a weight of an operation: a graph cut apart, or none. Export it again."
        )
        return [Problem("no-weights", "error", message, f"{part.name}.xml")]
    mode = part.declared.get("mode")
    found = {scheme.mode: scheme for scheme in part.schemes}
    if mode is None or not found:
        return []
    if mode not in found:
        message = f"declares {mode}, its weights are {', '.join(found)}: the graph's weights count."
    elif part.declared.get("group_size", "-1") not in {str(s.group) for s in part.schemes if s.mode == mode}:
        message = (
            f"declares groups of {part.declared['group_size']}, its {mode} weights have {found[mode].group}."
        )
    else:
        return []
    return [Problem("quantisation-declared", "note", message, f"{part.name}.xml")]


def draft_cost(head: Graph, experts: Experts | None, fit: Fit, own_lm_head: Graph | None) -> DraftCost:
    """Bytes that a draft reads of the head, the lm_head (the target's unless the head has its own), and embeddings."""
    layer = sum(weight.bytes for weight in find_weights(head) if not weight.used_by("Gather"))
    logits = fit.target_lm_head
    if own_lm_head is not None:
        logits = lm_head(own_lm_head, find_weights(own_lm_head))
    projection = 0 if logits is None else logits.bytes
    row = 0 if fit.table is None else fit.table[1].bytes // max(fit.table[1].const.shape[0], 1)
    most = layer + projection + row
    spared = 0
    if experts is not None and experts.bytes_chosen is not None:
        spared = experts.bytes_all - experts.bytes_chosen
    return DraftCost(layer=layer, lm_head=projection, embedding_row=row, most=most, least=most - spared)


def tied(target: Graph, fit: Fit) -> bool | None:
    """Whether the embeddings are the lm_head's weights: one constant for both, or rows that point the same way.

    None where either can't be found or read, or the rows say neither. Raises ModelDirError.
    """
    if fit.table is None or fit.target_lm_head is None:
        return None
    graph, table = fit.table
    logits = fit.target_lm_head
    if graph is target and table.key == logits.key:
        return True
    if table.const.shape[0] != logits.const.shape[0] or table.const.elements != logits.const.elements:
        return False if table.const.elements != logits.const.elements else None
    cosines = _cosines(graph, table, target, logits)
    if not cosines:
        return None
    middle = float(np.median(cosines))
    return True if middle >= SAME else False if middle <= OTHER else None


def decoder_layers(target: Graph, layers: int | None) -> tuple[int | None, list[Problem]]:
    """(entries of hidden_states_decoder_layers, problems). layers: how many config.json declares.

    openvino-genai 2026.4.1 decodes with an MTP head without it (tried on the sample); other drafters read it.
    """
    where = target.file.name
    if LAYERS not in target.info:
        message = f"no {LAYERS} in its runtime information: MTP does without, drafters that read other layers don't."
        return None, [Problem("no-decoder-layers", "note", message, where)]
    try:
        entries = msgspec.json.decode(target.info[LAYERS], type=_Layers).layers
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"{LAYERS} can't be read ({str(error)[:120]}). Export the target again."
        return None, [Problem("decoder-layers-damaged", "warning", message, where)]
    names = set(target.names.values())
    dangling = sorted(number for number, entry in entries.items() if entry.producer not in names)
    if dangling:
        message = (
            f"{LAYERS} names operations that aren't in the graph (layers {', '.join(dangling[:8])[:80]}): it is "
            "another graph's, or the names were changed. Export the target again."
        )
        return len(entries), [Problem("decoder-layers-damaged", "warning", message, where)]
    if layers is not None and len(entries) != layers:
        message = f"{LAYERS} has {len(entries)} entries, config.json declares {layers} layers."
        return len(entries), [Problem("config-mismatch", "warning", message, where)]
    return len(entries), []


class _Layer(msgspec.Struct, frozen=True):
    producer: str


class _Layers(msgspec.Struct, frozen=True):
    layers: dict[str, _Layer]


def _cosines(graph: Graph, table: Weight, target: Graph, logits: Weight) -> list[float]:
    rows = table.const.shape[0]
    found = []
    for row in sorted({rows * i // ROWS for i in range(ROWS)}):
        one, other = read_row(graph, table, row), read_row(target, logits, row)
        if one is None or other is None or len(one) != len(other):
            continue
        with np.errstate(all="ignore"):
            length = float(np.linalg.norm(one) * np.linalg.norm(other))
        if np.isfinite(length) and length > 0:
            found.append(float(one @ other) / length)
    return found
