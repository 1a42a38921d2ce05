"""Keeps what was said within a bound: the more text a run has, the smaller the window around each divergence.

Every text stays present with the place where it parts from the other; only how much of its surroundings is kept
shrinks. The whole text is always in the run's records.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

BUDGET = 7_500_000
"""Bytes of HTML that all excerpts of a run may take together. With the page's own markup, 2,000 answers that all
diverge stay under 10 MB."""
WIDEST, NARROWEST = 32_000, 250
"""Characters of one text, at most and at least."""


class Excerpt(msgspec.Struct, frozen=True):
    """A window of a text. start: characters left out before it. total: characters of the whole text."""

    text: str
    start: int
    total: int
    redacted: bool = False

    @property
    def left_out(self) -> int:
        """Characters of the whole that are not in the window."""
        return self.total - len(self.text)


def cut(text: str, at: int, limit: int) -> Excerpt:
    """The window of `limit` characters of `text` that holds index `at` in its first quarter."""
    start = 0 if at < limit * 3 // 4 else max(0, at - limit // 4)
    return Excerpt(text[start : start + limit], start, len(text))


def html_bytes(text: str) -> int:
    """About how many bytes `text` takes in the page."""
    quotes = sum(text.count(c) for c in "<>&'\"")
    return len(text.encode("utf-8", "surrogatepass")) + 4 * quotes


class _Held(NamedTuple):
    excerpt: Excerpt
    at: int
    weight: int
    cost: int


class Shelf:
    """Texts put on it one after the other; `get` gives the window of one when all are there."""

    def __init__(self, budget: int = BUDGET, *, redact: bool = False) -> None:
        self._budget = budget
        self._redact = redact
        self._limit = WIDEST
        self._cost = 0
        self._held: list[_Held] = []

    def put(self, text: str, at: int = 0, weight: int = 1) -> int:
        """Keep `text` around character `at`; `weight` is how often the page shows it. Returns its number."""
        if self._redact:
            self._held.append(_Held(Excerpt("", 0, len(text), True), 0, 0, 0))
            return len(self._held) - 1
        self._held.append(self._hold(cut(text, at, self._limit), at, weight))
        self._cost += self._held[-1].cost
        while self._cost > self._budget and self._limit > NARROWEST:
            self._limit = max(NARROWEST, self._limit // 2)
            self._held = [self._hold(self._narrow(held), held.at, held.weight) for held in self._held]
            self._cost = sum(held.cost for held in self._held)
        return len(self._held) - 1

    def get(self, number: int) -> Excerpt:
        return self._held[number].excerpt

    def _narrow(self, held: _Held) -> Excerpt:
        old = held.excerpt
        new = cut(old.text, held.at - old.start, self._limit)
        return Excerpt(new.text, old.start + new.start, old.total)

    @staticmethod
    def _hold(excerpt: Excerpt, at: int, weight: int) -> _Held:
        return _Held(excerpt, at, weight, weight * html_bytes(excerpt.text))
