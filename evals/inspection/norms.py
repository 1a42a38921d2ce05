"""Does the head apply its norms as the backbone does? A suspicion, by the values; only acceptance settles it.

Checkpoints of this family store a norm's weight w and apply 1 + w (Qwen3-Next and after); a head rebuilt without the
one, or with it twice, loads, runs, and accepts next to nothing (omlx#1507). Exported graphs hold what is applied, so
head and backbone compare directly.
"""

from __future__ import annotations

import numpy as np

from evals.inspection.graph import Const, Graph
from evals.inspection.types import Norms, Problem
from evals.inspection.values import Array, read_values
from evals.inspection.weights import constant_behind

_BACK = frozenset(
    {"Divide", "Sqrt", "Add", "Power", "Convert", "ReduceMean", "Multiply", "ConvertLike", "Maximum"}
)
_FLOATS = frozenset({"f32", "f16", "bf16"})
MIN_WIDTH = 8
MOST = 256
"""Norms that are read of a part."""

NEAR = 0.25
"""How near to one a difference of medians must be to look like the missing (or doubled) one."""

MANY_NEGATIVE, FEW_NEGATIVE = 0.25, 0.05
"""Weights applied as 1 + w are hardly ever negative; w alone is about as often as not."""


def norm_constants(graph: Graph) -> tuple[Const, ...]:
    """Vectors that multiply what a root mean square was divided out of."""
    return tuple(
        const
        for key, const in graph.consts.items()
        if const.type in _FLOATS
        and max(const.shape, default=1) >= MIN_WIDTH
        and const.elements == max(const.shape)
        and _scales_a_norm(graph, key)
    )


def compare_norms(head: Graph, backbone: Graph) -> tuple[Norms | None, Problem | None]:
    """Medians of both parts' norms of the same widths; a Problem where they look a one apart. Raises ModelDirError."""
    ours, theirs = _values(head), _values(backbone)
    widths = tuple(sorted(ours.keys() & theirs.keys()))
    if not widths:
        return None, None
    shifts = [float(np.median(ours[width]) - np.median(theirs[width])) for width in widths]
    mine = np.concatenate([ours[width] for width in widths])
    others = np.concatenate([theirs[width] for width in widths])
    found = Norms(
        widths=widths,
        head=float(np.median(mine)),
        backbone=float(np.median(others)),
        head_negative=float((mine < 0).mean()),
        backbone_negative=float((others < 0).mean()),
    )
    return found, _suspicion(found, shifts, head)


def _suspicion(norms: Norms, shifts: list[float], head: Graph) -> Problem | None:
    negative = norms.head_negative >= MANY_NEGATIVE and norms.backbone_negative <= FEW_NEGATIVE
    missing = negative or all(abs(shift + 1) <= NEAR for shift in shifts)
    doubled = all(abs(shift - 1) <= NEAR for shift in shifts)
    if not missing and not doubled:
        return None
    what = "without the 1 of 1 + w" if missing else "with the 1 of 1 + w added twice"
    return Problem(
        code="norm-convention",
        severity="warning",
        where=head.file.name,
        message=(
            f"the head's norms look applied {what}: their median is {norms.head:.2f} ({norms.head_negative:.0%} "
            f"negative), the backbone's {norms.backbone:.2f} ({norms.backbone_negative:.0%} negative). Acceptance "
            "tells: about 0 % means that the head was built wrongly."
        ),
    )


def _values(graph: Graph) -> dict[int, Array]:
    """Width → all values of norms of that width, at most MOST norms spread over the graph."""
    constants = norm_constants(graph)
    gathered: dict[int, list[Array]] = {}
    for const in constants[:: max(1, len(constants) // MOST)]:
        values = read_values(graph, const, 0, 4096)
        if values is not None and np.isfinite(values).all():
            gathered.setdefault(const.elements, []).append(values)
    return {width: np.concatenate(parts) for width, parts in gathered.items()}


def _scales_a_norm(graph: Graph, key: str) -> bool:
    pending = [key]
    for _ in range(3):
        following = [to for at in pending for _, to in graph.consumers.get(at, ())][:16]
        for to in following:
            if graph.types[to] == "Multiply":
                others = [s for _, s in graph.inputs.get(to, []) if s not in pending]
                if any(_is_normed(graph, other) for other in others):
                    return True
        pending = [to for to in following if graph.types[to] in ("Convert", "ConvertLike")]
    return False


def _is_normed(graph: Graph, key: str) -> bool:
    """Whether a product's operand is one over the root of a mean."""
    if graph.types[key] in ("Convert", "ConvertLike"):
        key = min(graph.inputs.get(key, [(0, key)]))[1]
    if graph.types[key] != "Multiply":
        return False
    for _, operand in graph.inputs.get(key, []):
        at = operand
        for _ in range(6):
            if graph.types[at] == "ReduceMean":
                return True
            feeding = [s for _, s in graph.inputs.get(at, []) if constant_behind(graph, s) is None]
            if graph.types[at] not in _BACK or len(feeding) != 1:
                break
            at = feeding[0]
    return False
