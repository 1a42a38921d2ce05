"""Margins from the servers themselves: both are asked again, with the likeliest tokens at each place.

The gap is plain's own. The width noise is how far the gap between plain's two best tokens moves from one server to the
other, over the places where both said the same and both tell real numbers. Some servers give 0.0 and no alternatives
for a drafted token that was accepted (llama.cpp): that is no number. Without enough places there is no noise, and
then no near-tie can be called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

import msgspec
import numpy as np

from evals.endpoint.reply import Reply
from evals.endpoint.seat import EndpointSeat
from evals.endpoint.wire import TokenLogprob
from evals.margins import first_difference
from evals.plan import Asked, Plan
from evals.types import Answer, Failure, Margin

TOPS = (20, 5)
"""Alternatives asked for, and fewer where a server refuses so many."""

MIN_PLACES = 30
"""Places below which their movement is not taken for a noise."""

LEAST_QUESTIONS = 8
"""Questions asked again: where fewer answers differ, others go with them, for the noise's sake."""

LEAST_LOGPROB = -1e4
"""Below it a number is a filler for "never", not a logprob: arithmetic with it says nothing, and may overflow."""

MOST_MASS = 1.01
"""What the probabilities of a place may sum to, as they are rounded by servers that compute in 16 bits."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class Place(msgspec.Struct, frozen=True):
    """One token of a reply: its bytes, and the logprobs of the likeliest at its place; none where they aren't real."""

    token: bytes
    top: dict[bytes, float]


class ServedMargins:
    """Iterate over it once, as a context manager. `problem` says what could not be measured, "" if nothing."""

    def __init__(
        self, plan: Plan, seats: Mapping[str, EndpointSeat], base: str, pairs: Sequence[tuple[Answer, Answer]]
    ) -> None:
        self._seats, self._base, self._pairs = seats, base, pairs
        self._asked = {(asked.task, asked.prompt): asked for asked in plan.asked}
        self.problem = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self._seats.values():
            seat.kill()

    def __iter__(self) -> Iterator[Margin]:
        if not self._pairs:
            return
        names = dict.fromkeys((self._base, *(other.arm for _, other in self._pairs)))
        replies = {name: self._replies(name) for name in names}
        moved: dict[str, list[float]] = {}
        for name, places in replies.items():
            if name != self._base:
                both = [
                    (replies[self._base][at], found)
                    for at, found in places.items()
                    if at in replies[self._base]
                ]
                moved[name] = [m for one, other in both for m in movements(one, other)]
        for base, other in self._pairs:
            at = (other.task, other.prompt)
            one, two = replies[self._base].get(at), replies[other.arm].get(at)
            if one and two:
                found = margin_at(base, other, one, two, noise_of(moved[other.arm]))
                if found is not None:
                    yield found

    def _replies(self, name: str) -> dict[tuple[str, str], list[Place]]:
        """Every diverged prompt asked of one arm again, and a few others; those without an answer, or without numbers,
        are left out."""
        seat = self._seats[name]
        seat.start()
        failure = seat.ready()
        found: dict[tuple[str, str], list[Place]] = {}
        tops = list(TOPS)
        for asked in self._questions() if failure is None else ():
            while True:
                reply = seat.ask(asked, whole=True, top_logprobs=tops[0])
                if isinstance(reply, Failure) and reply.kind == "refused" and len(tops) > 1:
                    tops.pop(0)
                    continue
                break
            if isinstance(reply, Reply) and reply.logprobs:
                found[asked.task, asked.prompt] = [place(entry) for entry in reply.logprobs]
            else:
                why = reply.message if isinstance(reply, Failure) else "the server offers no logprobs"
                self.problem = f"{name}, {asked.task}/{asked.prompt}: {why}"
        seat.kill()
        if failure is not None:
            self.problem = f"{name}: {failure.message}"
        return found

    def _questions(self) -> list[Asked]:
        """The diverged ones first; a record of a prompt that the plan doesn't have can't be asked again."""
        named = dict.fromkeys((other.task, other.prompt) for _, other in self._pairs)
        diverged = [at for at in named if at in self._asked]
        others = [at for at, asked in self._asked.items() if at not in diverged and asked.after is None]
        return [self._asked[at] for at in (*diverged, *others[: max(0, LEAST_QUESTIONS - len(diverged))])]


def parts_there(base: Answer, served: Answer, token_bytes: Callable[[int], bytes]) -> bool:
    """Whether two answers' texts part at the first token that differs. The served one's ids are those into which its
    text was split again, so that they may differ before the texts do; then no token was taken in another's place."""
    index = first_difference(base, served)
    if index is None:
        return False
    before = b"".join(map(token_bytes, base.ids[:index]))
    texts = base.text.encode(), served.text.encode()
    if not all(text.startswith(before) for text in texts):
        return False
    rests = [text[len(before) :] for text in texts]
    tokens = token_bytes(base.ids[index]), token_bytes(served.ids[index])
    return not all(rest.startswith(token) for rest in rests for token in tokens)


def place(entry: TokenLogprob) -> Place:
    """A token's place. A logprob of exactly 0 without alternatives is none: a draft that was taken over unseen; and
    numbers whose probabilities sum to more than 1 are no logprobs (a 0 beside others, a score that isn't normalised).
    """
    token = bytes_of(entry.token, entry.bytes)
    top = {
        bytes_of(t.token, t.bytes): t.logprob
        for t in entry.top_logprobs or ()
        if t.logprob is not None and t.logprob >= LEAST_LOGPROB
    }
    real = len(top) >= 2 and not (entry.logprob == 0.0 and token not in top)
    return Place(token, top if real and _mass(top.values()) <= MOST_MASS else {})


def _mass(logprobs: Iterable[float]) -> float:
    """The sum of probabilities; inf where one alone is above 1 by far."""
    return sum(math.exp(min(value, 50.0)) for value in logprobs)


def bytes_of(token: str, data: list[int] | None) -> bytes:
    if data and all(0 <= b < 256 for b in data):
        return bytes(data)
    return token.encode("utf-8", "replace")


def movements(base: Sequence[Place], other: Sequence[Place]) -> Iterator[float]:
    """How far the gap between plain's two best tokens moved, in nats, at each place before the replies part. What it
    moved by where they part is what the noise has to excuse, so it is no part of it."""
    for one, two in zip(base, other, strict=False):
        if one.token != two.token:
            return
        if one.top and two.top:
            best, second = sorted(one.top, key=lambda t: one.top[t], reverse=True)[:2]
            if best in two.top and second in two.top:
                found = abs((one.top[best] - one.top[second]) - (two.top[best] - two.top[second]))
                if math.isfinite(found):
                    yield found


def noise_of(moved: Sequence[float]) -> dict[str, float]:
    """Quantiles of the movements; empty below MIN_PLACES of them."""
    if len(moved) < MIN_PLACES:
        return {}
    values = np.quantile(np.asarray(moved), list(QUANTILES.values()))
    return dict(zip(QUANTILES, map(float, values), strict=True))


def margin_at(
    base: Answer, other: Answer, one: Sequence[Place], two: Sequence[Place], noise: dict[str, float]
) -> Margin | None:
    """The margin at the first token that differs; None where plain tells no numbers there.

    It is evidence (`reproduced`) where both replies were what is on record up to there, and plain lists the other arm's
    token.
    """
    index = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a.token != b.token), None)
    if index is None or not one[index].top:
        return None
    top, token = one[index].top, two[index].token
    before = b"".join(p.token for p in one[:index])
    known = token in top
    took = top[token] if known else min(top.values())
    reproduced = (
        known
        and base.text.encode().startswith(before + one[index].token)
        and other.text.encode().startswith(before + token)
    )
    own = two[index].top
    moved = None
    if known and one[index].token in own and token in own:
        moved = abs((top[one[index].token] - took) - (own[one[index].token] - own[token]))
    return Margin(
        arm=other.arm,
        task=other.task,
        prompt=other.prompt,
        repeat=other.repeat,
        token_index=index,
        rank=1 + sum(value > took for value in top.values()) + (0 if known else 1),
        gap=max(top.values()) - took,
        gap_at_verify_width=max(own.values()) - own[token] if token in own else None,
        movement=moved,
        noise=noise,
        source="server",
        reproduced=reproduced,
    )
