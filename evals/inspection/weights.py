"""A graph's weights and how each is quantised, read off the graph: by who consumes a constant, never by its name.

A compressed weight is what nncf leaves of it: Convert, (Subtract zero point, or Gather from a codebook), Multiply
scale, (Reshape of its groups), (Convert), and then the operation that uses it. What rt_info declares is kept apart: the
backup layers differ from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from evals.inspection.graph import BITS, Const, Graph

USERS = frozenset({"MatMul", "Gather", "Convolution", "GroupConvolution", "GatherMatmul"})
"""Operations whose constant operand is a weight."""

_THROUGH = frozenset({"Convert", "ConvertLike", "Reshape", "Transpose", "Unsqueeze", "Squeeze"})
_SCALED = frozenset({"Multiply", "Subtract"})
_FLOATS = frozenset({"f64", "f32", "f16", "bf16"})
_SYMMETRIC = frozenset({"i4", "i8"})
_NAMED = {"nf4": "nf4", "f4e2m1": "fp4", "f8e4m3": "fp8_e4m3", "f8e5m2": "fp8_e5m2"}
_SCALED_BY = {
    ("f4e2m1", "f8e8m0"): "mxfp4", ("f8e4m3", "f8e8m0"): "mxfp8_e4m3", ("f8e5m2", "f8e8m0"): "mxfp8_e5m2",
    ("f4e2m1", "f8e4m3"): "nvfp4",
}  # fmt: skip
"""Types of a weight and of its scale that together have a name of their own."""

CODEBOOKS = ("cb4", "codebook")
_KINDS = _FLOATS | _SYMMETRIC | frozenset(_NAMED) | {"u8", "u4", "u3", "u6", "u2", "u1"}
_MAX_STEPS = 200
MIN_WEIGHT = 64
"""Elements below which a constant that feeds a Gather or MatMul is an index table or a frequency, not a weight."""


class Weight(msgspec.Struct, frozen=True):
    """One weight. mode: nncf's word ("int4_asym", "int8_sym", …) or the type of a float. group: elements that share a
    scale, -1 for a whole channel, None for a float. extra: its scale and zero point. users: (operation, key)."""

    key: str
    const: Const
    mode: str
    group: int | None
    scale: Const | None
    zero: Const | None
    users: tuple[tuple[str, str], ...]

    @property
    def bytes(self) -> int:
        return self.const.size + sum(extra.size for extra in (self.scale, self.zero) if extra)

    def used_by(self, kind: str) -> bool:
        return any(user == kind for user, _ in self.users)


class Scheme(msgspec.Struct, frozen=True):
    """Weights of a part that are quantised alike. share: of the part's parameters, 0 to 1. bytes: scales included."""

    mode: str
    bits: int
    group: int | None
    weights: int
    parameters: int
    share: float
    bytes: int


def find_weights(graph: Graph) -> tuple[Weight, ...]:
    """Every constant that is an operand of a matrix product, a table look-up or a convolution."""
    found = (_trace(graph, key, const) for key, const in graph.consts.items() if _may_be_weight(const))
    return tuple(weight for weight in found if weight is not None)


def schemes(weights: tuple[Weight, ...]) -> tuple[Scheme, ...]:
    """Weights by mode and group size, the largest share first."""
    groups: dict[tuple[str, int | None], list[Weight]] = {}
    for weight in weights:
        groups.setdefault((weight.mode, weight.group), []).append(weight)
    total = sum(weight.const.elements for weight in weights)
    made = [
        Scheme(
            mode=mode,
            bits=BITS[members[0].const.type],
            group=group,
            weights=len(members),
            parameters=(count := sum(weight.const.elements for weight in members)),
            share=count / total if total else 0.0,
            bytes=sum(weight.bytes for weight in members),
        )
        for (mode, group), members in groups.items()
    ]
    return tuple(sorted(made, key=lambda scheme: (-scheme.parameters, scheme.mode)))


def lm_head(graph: Graph, weights: tuple[Weight, ...]) -> Weight | None:
    """The weight whose product is the graph's result: the largest one that leads there through elementwise steps."""
    through = _THROUGH | {"Multiply", "Divide", "Tanh", "Add", "Slice", "Gather", "Clamp"}
    leading = [
        weight
        for weight in weights
        if any(
            kind == "MatMul" and "Result" in {graph.types[key] for key in reach(graph, user, through)}
            for kind, user in weight.users
        )
    ]
    return max(leading, key=lambda weight: weight.const.elements, default=None)


def embedding(weights: tuple[Weight, ...]) -> Weight | None:
    """The table of token embeddings: the largest weight that is looked up."""
    return max(
        (w for w in weights if w.used_by("Gather")), key=lambda weight: weight.const.elements, default=None
    )


def reach(graph: Graph, start: str, through: frozenset[str], steps: int = 8) -> Iterator[str]:
    """Keys that `start` feeds, on through operations of the given kinds."""
    edge, seen = {start}, {start}
    for _ in range(steps):
        edge = {to for key in edge for _, to in graph.consumers.get(key, ())} - seen
        seen |= edge
        if not edge or len(seen) > _MAX_STEPS:
            return
        yield from edge
        edge = {key for key in edge if graph.types[key] in through}


def constant_behind(graph: Graph, key: str) -> Const | None:
    """The constant that a key is, or is converted from."""
    for _ in range(4):
        if key in graph.consts:
            return graph.consts[key]
        feeding = graph.inputs.get(key, [])
        if graph.types[key] not in _THROUGH or not feeding:
            return None
        key = min(feeding)[1]
    return None


def _may_be_weight(const: Const) -> bool:
    if const.type not in _KINDS or const.elements < MIN_WEIGHT:
        return False
    return sum(side > 1 for side in const.shape) >= 2


def _trace(graph: Graph, key: str, const: Const) -> Weight | None:
    """Follow a constant to its users; None where it is a scale, a zero point, or an operand of something else."""
    scale = zero = codebook = None
    users: set[tuple[str, str]] = set()
    grouped = False
    pending, seen = [key], {key}
    while pending and len(seen) < _MAX_STEPS:
        at = pending.pop()
        for port, to in graph.consumers.get(at, ()):
            kind = graph.types[to]
            table = _codebook(graph, const, to) if kind == "Gather" and port == 1 else None
            if kind in USERS and table is None:
                if kind != "Gather" or port == 0:
                    users.add((kind, to))
                continue
            codebook = table or codebook
            if kind in _SCALED:
                other = _other_operand(graph, to, at)
                if other is None or other.elements > const.elements:
                    continue
                if other.elements == const.elements and port != 0:
                    continue
                if kind == "Multiply":
                    scale = other
                else:
                    zero = other
            elif kind not in _THROUGH and table is None:
                continue
            grouped = grouped or (kind == "Reshape" and scale is not None)
            if to not in seen:
                seen.add(to)
                pending.append(to)
    if not users:
        return None
    mode, group = _mode(const, scale, zero, grouped)
    if codebook is not None:
        mode = "cb4" if (const.type, codebook.type) == ("u4", "f8e4m3") else "codebook"
    return Weight(
        key=key, const=const, mode=mode, group=group, scale=scale, zero=zero, users=tuple(sorted(users))
    )


def _other_operand(graph: Graph, key: str, known: str) -> Const | None:
    """The constant operand of an operation besides the one that comes from `known`."""
    for _, source in sorted(graph.inputs.get(key, [])):
        if source != known:
            return constant_behind(graph, source) or _scaled_scale(graph, source)
    return None


def _scaled_scale(graph: Graph, key: str) -> Const | None:
    """The scales behind a product of scales with one number, as nvfp4 has it."""
    if graph.types[key] in _THROUGH:
        key = min(graph.inputs.get(key, [(0, key)]))[1]
    if graph.types[key] != "Multiply":
        return None
    factors = [constant_behind(graph, source) for _, source in graph.inputs.get(key, [])]
    found = [factor for factor in factors if factor is not None]
    whole = len(found) == len(factors) and any(factor.elements == 1 for factor in found)
    return max(found, key=lambda factor: factor.elements) if whole else None


def _codebook(graph: Graph, const: Const, key: str) -> Const | None:
    """The table that a Gather looks a weight's numbers up in; None where it is a usual look-up."""
    tables = [constant_behind(graph, source) for port, source in graph.inputs.get(key, []) if port == 0]
    table = tables[0] if tables else None
    return table if table is not None and table.elements <= 1 << BITS[const.type] <= 1 << 8 else None


def _mode(const: Const, scale: Const | None, zero: Const | None, grouped: bool) -> tuple[str, int | None]:
    if const.type in _FLOATS:
        return const.type, None
    group = const.shape[-1] if grouped else -1
    if scale is not None and math.prod(scale.shape) == 1:
        group = -1
    if const.type in _NAMED:
        together = _SCALED_BY.get((const.type, "" if scale is None else scale.type))
        return together or _NAMED[const.type], group
    bits = BITS[const.type]
    if const.type in _SYMMETRIC:
        return f"int{bits}_{'asym' if zero is not None else 'sym'}", group
    if zero is None:
        return f"uint{bits}", group
    return f"int{bits}_{'sym' if zero.elements == 1 else 'asym'}", group
