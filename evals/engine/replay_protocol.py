"""What passes between `evals.margins` and its child: JSON lines, as in `protocol`."""

from __future__ import annotations

from typing import Literal

import msgspec


class Load(msgspec.Struct, frozen=True, tag="load", forbid_unknown_fields=True):
    """First line: the graph to replay. batch: longest prompt step in tokens."""

    model: str
    target: str
    device: str
    properties: dict[str, str]
    batch: int


class Measure(msgspec.Struct, frozen=True, tag="measure", forbid_unknown_fields=True):
    """Two answers to one rendered prompt that part at some token."""

    text: str
    prompt_tokens: int
    base_ids: tuple[int, ...]
    other_ids: tuple[int, ...]
    other_steps: tuple[int, ...]
    k: int


class Loaded(msgspec.Struct, frozen=True, tag="loaded", forbid_unknown_fields=True):
    """The graph is there. remark: why it is the stateful one, "" where it is the served one."""

    source: Literal["paged", "stateful"]
    remark: str


class Measured(msgspec.Struct, frozen=True, tag="measured", forbid_unknown_fields=True):
    """Fields mean what they mean in `evals.types.Margin`."""

    token_index: int
    rank: int
    gap: float
    gap_at_verify_width: float | None
    movement: float | None
    noise: dict[str, float]
    source: Literal["paged", "stateful"]
    reproduced: bool
    rescored_max_gap: float
    rescored_max_gap_at: int
    rescored_max_rank: int


class ReplayProblem(msgspec.Struct, frozen=True, tag="problem", forbid_unknown_fields=True):
    """This pair (or the graph) can't be replayed; the child lives on after a pair."""

    message: str


ToReplayer = Load | Measure
FromReplayer = Loaded | Measured | ReplayProblem
