"""Which prompts are in flight together: batches of N, the same for every arm and every repeat, tasks mixed.

Heads fail in parallel slots where they don't fail alone, so an arm is decoded with N requests in flight beside plain
with as many. What a batch holds can change the numerics of each of its members, so that it is drawn once (seeded) and
kept. The last batch is filled up with prompts from the start: N are in flight at all times.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from evals.types import Arm

MAX_CONCURRENCY = 256
"""Requests in flight: openvino-genai's default for the most sequences in one batch."""


class LoadError(ValueError):
    """A number of requests in flight that can't be: expected, found, what to do."""


class Question(Protocol):
    """What is asked: all that a batch is drawn by. after: the prompt of its task whose answer it goes on from."""

    @property
    def task(self) -> str: ...
    @property
    def prompt(self) -> str: ...
    @property
    def after(self) -> str | None: ...


_A = TypeVar("_A", bound=Question)


class Batch(NamedTuple):
    """Places (indices into what is asked) in flight together, in the order of their slots; the last `fill` of them are
    there only to keep as many in flight."""

    places: tuple[int, ...]
    fill: int


def parse_concurrency(numbers: Iterable[int]) -> tuple[int, ...]:
    """`--concurrency`, each number once, 1 where none is given. Raises LoadError."""
    found = tuple(dict.fromkeys(numbers)) or (1,)
    for n in found:
        if not 1 <= n <= MAX_CONCURRENCY:
            raise LoadError(f"--concurrency {n}: expected from 1 to {MAX_CONCURRENCY} requests in flight.")
    return found


def under_load(arms: Sequence[Arm], concurrency: Iterable[int], seed: int) -> tuple[Arm, ...]:
    """All arms once for each number of requests in flight; names end in /nN where N is over 1."""
    return tuple(
        arm
        if n == 1
        else msgspec.structs.replace(arm, name=arm.name + load_suffix(n), concurrency=n, batch_seed=seed)
        for n in concurrency
        for arm in arms
    )


def load_suffix(concurrency: int) -> str:
    """What an arm's name ends in for its number of requests in flight."""
    return f"/n{concurrency}" if concurrency > 1 else ""


def require_prompts(concurrency: Iterable[int], prompts: int) -> None:
    """Raises LoadError where there are fewer prompts (first turns) than are to be in flight: none may be in a batch
    twice."""
    most = max(concurrency)
    if most > prompts:
        raise LoadError(
            f"--concurrency {most}: expected at least {most} prompts, found {prompts}. Give more tasks, or "
            "--variants N for more wordings, or a smaller --concurrency."
        )


def batches(asked: Sequence[_A], size: int, seed: int) -> tuple[Batch, ...]:
    """Draw batches of `size`. Each task's prompts are spread evenly over the whole, so long and short ones meet.

    Later turns of conversations come after all that are a turn before them, in batches of their own. Prompts that fill
    up a batch are first turns, each once; where those run out, the last batch of later turns stays smaller.
    """
    orders = [_mixed(asked, places, seed) for places in _waves(asked)]
    found: list[Batch] = []
    spare = 0
    for order in orders:
        for at in range(0, len(order), size):
            places = order[at : at + size]
            most = at if order is orders[0] else len(orders[0])
            fill = orders[0][spare : min(spare + size - len(places), most)]
            spare += len(fill)
            found.append(Batch((*places, *fill), len(fill)))
    return tuple(found)


def _waves(asked: Sequence[_A]) -> list[list[int]]:
    """Places by the number of turns before them in their conversation."""
    before: dict[tuple[str, str], int] = {}
    waves: defaultdict[int, list[int]] = defaultdict(list)
    for place, one in enumerate(asked):
        turns = 0 if one.after is None else before.get((one.task, one.after), 0) + 1
        before[one.task, one.prompt] = turns
        waves[turns].append(place)
    return [waves[turns] for turns in sorted(waves)]


def _mixed(asked: Sequence[_A], among: Sequence[int], seed: int) -> list[int]:
    draw = random.Random(seed)  # noqa: S311 (an order, no secret)
    by_task: defaultdict[str, list[int]] = defaultdict(list)
    for place in among:
        by_task[asked[place].task].append(place)
    placed = []
    for places in by_task.values():
        draw.shuffle(places)
        placed += [((i + draw.random()) / len(places), place) for i, place in enumerate(places)]
    return [place for _, place in sorted(placed)]
