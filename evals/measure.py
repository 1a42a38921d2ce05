"""From logits to a margin: rank, gap, movement between widths, noise, and whether the replay is evidence.

Pure arithmetic over any `Replay`. A row's gap is the distance in nats from its best logit to a token's; ties share a
rank. The yardstick is the movement of the gap between the two best tokens when only the width of a step changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
import numpy as np
from numpy.typing import NDArray

from evals.engine.replay_protocol import Measure, Measured
from evals.replay import Logits, Replay, ReplayError

CALIBRATE = 256
"""Positions of plain answers that a yardstick is measured on before the first margin."""

Row = NDArray[np.float64]


class _Best(msgspec.Struct, frozen=True):
    """The two best tokens of a row, and the gap between them in nats."""

    first: int
    second: int
    gap: float


class Yardsticks:
    """Width noise by verify width: how far the gap between the two best tokens moved, one value a position."""

    def __init__(self) -> None:
        self._movements: defaultdict[int, list[float]] = defaultdict(list)

    def enough(self, width: int) -> bool:
        return len(self._movements[width]) >= CALIBRATE

    def add(self, width: int, best: _Best, row: Row) -> None:
        self._movements[width].append(abs(best.gap - float(row[best.first] - row[best.second])))

    def quantiles(self, width: int) -> dict[str, float]:
        """p50, p90, p99 and max in nats; empty where nothing was measured."""
        seen = self._movements[width]
        if not seen:
            return {}
        levels = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
        return {name: float(np.quantile(seen, level)) for name, level in levels.items()}


def measure(replay: Replay, yardsticks: Yardsticks, prompt: Sequence[int], order: Measure) -> Measured:
    """Replay both answers up to where they part, and re-score the other one as a whole.

    Up to there they are one text: the pass that shows plain's logits goes on into the other answer, step by step of
    width 1, so that each of its tokens is scored as plain would have. A second pass takes the arm's own steps.

    reproduced: plain's replay gave plain's own tokens up to and with the divergence, and the other arm's replay its
    own before it. Raises ReplayError where an id lies outside the vocabulary or the prompt was tokenised otherwise.
    """
    at = _parting(order)
    width = order.k + 1
    if len(prompt) != order.prompt_tokens:
        raise ReplayError(f"expected {order.prompt_tokens} prompt tokens as decoded, found {len(prompt)}")
    bests: list[_Best] = []
    reproduced = True
    plain, wanted = np.empty(0), order.other_ids[at]
    worst = (at, 0.0, 1)
    for index, row in enumerate(_rows_by_one(replay, prompt, order.other_ids)):
        _check_vocabulary(order, row)
        token = order.other_ids[index]
        if index <= at:
            bests.append(_best(row))
            reproduced &= _gap(row, order.base_ids[index]) == 0
        if index == at:
            plain = row
        if index >= at and (index == at or _gap(row, token) > worst[1]):
            worst = (index, _gap(row, token), _rank(row, token))
    verify: Row | None = None
    for index, verify in enumerate(islice(_rows_by_steps(replay, prompt, order), at + 1)):
        if index < at:
            reproduced &= _gap(verify, order.other_ids[index]) == 0
            yardsticks.add(width, bests[index], verify)
    if not yardsticks.enough(width):
        _calibrate(replay, yardsticks, prompt, order.base_ids, width)
    worst_at, worst_gap, worst_rank = worst
    mine = order.base_ids[at]
    return Measured(
        token_index=at,
        rank=_rank(plain, wanted),
        gap=_gap(plain, wanted),
        gap_at_verify_width=None if verify is None else _gap(verify, wanted),
        movement=None
        if verify is None
        else abs(float((plain[mine] - plain[wanted]) - (verify[mine] - verify[wanted]))),
        noise=yardsticks.quantiles(width),
        source=replay.source,
        reproduced=reproduced,
        rescored_max_gap=worst_gap,
        rescored_max_gap_at=worst_at,
        rescored_max_rank=worst_rank,
    )


def _calibrate(
    replay: Replay, yardsticks: Yardsticks, prompt: Sequence[int], ids: Sequence[int], width: int
) -> None:
    """Force plain's whole answer at width 1 and at the verify width, and compare position by position."""
    bests = [_best(row) for row in _rows_by_one(replay, prompt, ids)]
    rows = _rows_in_steps(replay, prompt, ids, [width] * len(ids), width)
    for best, row in islice(zip(bests, rows, strict=False), 1, None):
        yardsticks.add(width, best, row)


def _rows_by_one(replay: Replay, prompt: Sequence[int], ids: Sequence[int]) -> Iterator[Row]:
    """Row i holds the logits from which token i was chosen, every step of width 1."""
    yield replay.start(prompt)[-1]
    for token in ids[:-1]:
        yield replay.step([token], 1)[-1]


def _rows_by_steps(replay: Replay, prompt: Sequence[int], order: Measure) -> Iterator[Row]:
    """The same at the steps in which the other arm delivered; drafts that were rejected aren't known and stand as 0."""
    width, steps = order.k + 1, list(order.other_steps)
    if sum(steps) != len(order.other_ids) or steps[0] != 1 or not all(0 < s <= width for s in steps):
        steps = [1] + [width] * len(order.other_ids)
    yield from _rows_in_steps(replay, prompt, order.other_ids, steps[1:], width)


def _rows_in_steps(
    replay: Replay, prompt: Sequence[int], ids: Sequence[int], steps: Sequence[int], width: int
) -> Iterator[Row]:
    yield replay.start(prompt)[-1]
    fed = 0
    for kept in steps:
        if fed >= len(ids) - 1:
            return
        tokens = [ids[i] if i < len(ids) else 0 for i in range(fed, fed + width)]
        rows: Logits = replay.step(tokens, kept)
        yield from rows[:kept][: len(ids) - 1 - fed]
        fed += kept


def _parting(order: Measure) -> int:
    for index, (mine, other) in enumerate(zip(order.base_ids, order.other_ids, strict=False)):
        if mine != other:
            return index
    raise ReplayError("expected two answers that part at a token, found none")


def _check_vocabulary(order: Measure, row: Row) -> None:
    top = max(*order.base_ids, *order.other_ids)
    if top >= len(row) or min(*order.base_ids, *order.other_ids) < 0:
        raise ReplayError(f"expected token ids below {len(row)}, found {top}")


def _best(row: Row) -> _Best:
    first, second = (int(i) for i in np.argsort(-row, kind="stable")[:2])
    return _Best(first=first, second=second, gap=float(row[first] - row[second]))


def _gap(row: Row, token: int) -> float:
    return float(row.max() - row[token])


def _rank(row: Row, token: int) -> int:
    return 1 + int((row > row[token]).sum())
