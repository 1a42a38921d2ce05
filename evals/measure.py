"""From logits to a margin: rank, gap, movement between widths, noise, and whether the replay is evidence.

Pure arithmetic over any `Replay`. A row's gap is the distance in nats from its best logit to a token's; ties share a
rank. The yardstick is the movement of the gap between the two best tokens when only the width of a step changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from evals.engine.replay_protocol import Measure, Measured
from evals.replay import Replay, ReplayError

CALIBRATE = 256
"""Positions of plain answers that a yardstick is measured on before the first margin."""

SCAN = 16
"""Tokens a step in which an answer is re-scored after the divergence: several times as fast as one by one."""

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


class _Scored(NamedTuple):
    """A token of an answer in plain's logits: its gap in nats, where it stands, its rank."""

    gap: float
    at: int
    rank: int


class _Narrow(msgspec.Struct, frozen=True):
    """What steps of one show. bests: by index, up to the divergence, or to plain's end where the noise is calibrated.

    row: plain's logits at the divergence. worst: the other answer's token from there on that lies furthest from the
    best.
    """

    bests: list[_Best]
    row: Row
    worst: _Scored
    reproduced: bool


def measure(replay: Replay, yardsticks: Yardsticks, prompt: Sequence[int], order: Measure) -> Measured:
    """Replay both answers up to where they part, and re-score the other one as a whole.

    Up to there they are one text: one pass goes by steps of one, as plain did, and one by the arm's own steps. The rest
    of the other answer is re-scored in steps of `SCAN` tokens, and by steps of one, as plain would have, where a token
    then lies further from the best than half of the width noise.

    reproduced: plain's replay gave plain's own tokens up to and with the divergence, and the other arm's replay its
    own before it. Raises ReplayError where an id lies outside the vocabulary or the prompt was tokenised otherwise.
    """
    at, width = _parting(order), order.k + 1
    mine, wanted = order.base_ids[at], order.other_ids[at]
    if len(prompt) != order.prompt_tokens:
        raise ReplayError(f"expected {order.prompt_tokens} prompt tokens as decoded, found {len(prompt)}")
    narrow = _by_one(replay, prompt, order, at, calibrate=not yardsticks.enough(width))
    verify, reproduced = _by_steps(replay, prompt, order, at, narrow.bests, yardsticks)
    noise = yardsticks.quantiles(width)
    plain, worst = narrow.row, narrow.worst
    if worst.at > at and worst.gap > noise.get("p50", 0.0):
        worst = _worst_by_one(replay, prompt, order.other_ids, at, plain)
    return Measured(
        token_index=at,
        rank=_rank(plain, wanted),
        gap=_gap(plain, wanted),
        gap_at_verify_width=_gap(verify, wanted),
        movement=abs(float((plain[mine] - plain[wanted]) - (verify[mine] - verify[wanted]))),
        noise=noise,
        source=replay.source,
        reproduced=narrow.reproduced and reproduced,
        rescored_max_gap=worst.gap,
        rescored_max_gap_at=worst.at,
        rescored_max_rank=worst.rank,
    )


def _by_one(replay: Replay, prompt: Sequence[int], order: Measure, at: int, *, calibrate: bool) -> _Narrow:
    base, other = order.base_ids, order.other_ids
    row = replay.start(prompt)[-1]
    _check_vocabulary(order, row)
    bests, reproduced = [_best(row)], _gap(row, base[0]) == 0
    for index in range(1, at + 1):
        row = replay.step([base[index - 1]], 1)[-1]
        bests.append(_best(row))
        reproduced &= _gap(row, base[index]) == 0
    parting = replay.mark()
    worst = _worst(other, [(at, row)], _rows_on(replay, other, at, SCAN))
    if calibrate:
        replay.go_back(parting)
        bests += [_best(later) for _, later in _rows_on(replay, base, at, 1)]
    return _Narrow(bests=bests, row=row, worst=worst, reproduced=reproduced)


def _by_steps(
    replay: Replay,
    prompt: Sequence[int],
    order: Measure,
    at: int,
    bests: Sequence[_Best],
    yardsticks: Yardsticks,
) -> tuple[Row, bool]:
    """Logits at the divergence by the arm's own steps, and whether these give the arm's tokens before it.

    What moved on the way is added to the noise. Where `bests` goes on beyond the divergence, plain's answer is forced
    to its end in steps of the verify width, for the noise too.
    """
    base, other, width = order.base_ids, order.other_ids, order.k + 1
    row, reproduced = replay.start(prompt)[-1], True
    fed, last = 0, (0, replay.mark())
    for kept in _steps(order):
        if fed >= at:
            break
        if fed + kept >= at:
            last = (fed, replay.mark())
        rows = replay.step(_padded(other, fed, width), kept)
        for index, row in enumerate(rows[: min(kept, at - fed)], fed + 1):
            if index < at:
                reproduced &= _gap(row, other[index]) == 0
                yardsticks.add(width, bests[index], row)
        fed += kept
    if len(bests) > at + 1:
        replay.go_back(last[1])
        for index, later in _rows_on(replay, base, last[0], width):
            if index >= at:
                yardsticks.add(width, bests[index], later)
    return row, reproduced


def _worst_by_one(replay: Replay, prompt: Sequence[int], ids: Sequence[int], at: int, plain: Row) -> _Scored:
    replay.start(prompt)
    for token in ids[:at]:
        replay.step([token], 1)
    return _worst(ids, [(at, plain)], _rows_on(replay, ids, at, 1))


def _worst(ids: Sequence[int], *rows: Iterable[tuple[int, Row]]) -> _Scored:
    """The first of the tokens furthest from the best of their rows, given as (index, row)."""
    scored = (_Scored(_gap(row, ids[index]), index, _rank(row, ids[index])) for index, row in chain(*rows))
    return max(scored, key=lambda token: token.gap)


def _rows_on(replay: Replay, ids: Sequence[int], fed: int, width: int) -> Iterator[tuple[int, Row]]:
    """Feed an answer on from its first `fed` tokens, in steps of one width: the rows of all later tokens by index."""
    for start in range(fed, len(ids) - 1, width):
        kept = min(width, len(ids) - start)
        rows = replay.step(_padded(ids, start, width), kept)
        yield from zip(range(start + 1, len(ids)), rows[:kept], strict=False)


def _steps(order: Measure) -> Sequence[int]:
    """Tokens that each verify step kept; full steps where the record of the steps makes no sense."""
    width, steps = order.k + 1, order.other_steps
    if sum(steps) != len(order.other_ids) or steps[0] != 1 or not all(0 < s <= width for s in steps):
        return [width] * len(order.other_ids)
    return steps[1:]


def _padded(ids: Sequence[int], start: int, width: int) -> list[int]:
    """The tokens of one step; drafts that were rejected aren't known and stand as 0."""
    return [ids[i] if i < len(ids) else 0 for i in range(start, start + width)]


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
    first = int(row.argmax())
    others = row.copy()
    others[first] = -np.inf
    second = int(others.argmax())
    return _Best(first=first, second=second, gap=float(row[first] - row[second]))


def _gap(row: Row, token: int) -> float:
    return float(row.max() - row[token])


def _rank(row: Row, token: int) -> int:
    return 1 + int((row > row[token]).sum())
