"""Lays two answers beside each other, line by line, with the place where they part first marked in both."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal

import msgspec

from evals.types import Divergence
from reports.excerpts import Excerpt

CONTEXT = 3
"""Equal lines that stay unfolded next to a changed block."""
MOST_LINES = 400
"""Lines of a side that are aligned after the divergence; where there are more, all of them are one changed block."""


class Marked(msgspec.Struct, frozen=True):
    """One side of a block, cut at the first divergence: `mark` is empty where that isn't in this block.

    ended: this side's answer ends exactly there.
    """

    before: str
    mark: str = ""
    after: str = ""
    ended: bool = False


class Block(msgspec.Struct, frozen=True):
    """Lines that are equal, equal and folded away, or different on the two sides. lines: the longer side's."""

    kind: Literal["same", "folded", "changed"]
    left: Marked
    right: Marked
    lines: int


class _Text:
    """One side: its lines, and which characters of it are marked."""

    def __init__(self, text: str, mark: tuple[int, int]) -> None:
        self.text = text
        self.lines = _lines(text)
        self._mark = mark
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    def part(self, first: int, stop: int, *, changed: bool = False) -> Marked:
        """Lines [first, stop) with the mark in them, if it is there. Only a changed block says that a side ended."""
        start, end = self._starts[first], self._starts[stop]
        low, high = (min(max(at, start), end) for at in self._mark)
        ended = changed and end == self._mark[0] == len(self.text)
        if low == high:
            return Marked(self.text[start:end], ended=ended)
        return Marked(self.text[start:low], self.text[low:high], self.text[high:end])


def blocks(base: Excerpt, other: Excerpt, divergence: Divergence | None = None) -> list[Block]:
    """The two excerpts as rows of blocks, top to bottom. `divergence` gives the tokens to mark; without it, or where
    they don't stand at the first differing character, that character is marked alone."""
    start = max(base.start, other.start)
    left, right = base.text[start - base.start :], other.text[start - other.start :]
    if left == right:
        count = len(_lines(left))
        return [Block("same", Marked(left), Marked(right), count)] if left else []
    at = _shared(left, right)
    tokens = (divergence.base_token_text, divergence.other_token_text) if divergence else ("", "")
    shared = _shared(*tokens)
    sides = [
        _Text(text, _mark(text, at, shared, token)) for text, token in zip((left, right), tokens, strict=True)
    ]
    return list(_rows(sides[0], sides[1], left.count("\n", 0, at), goes_on=at in (len(left), len(right))))


def _shared(a: str, b: str) -> int:
    """Number of characters that both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _lines(text: str) -> list[str]:
    """Lines with their ends; only "\\n" ends one, so that a lone carriage return isn't lost."""
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _mark(text: str, at: int, shared: int, token: str) -> tuple[int, int]:
    """Where `token` stands at the divergence, to the end of that line; it may begin earlier, with what both share."""
    start = at - shared
    if token and start >= 0 and text.startswith(token, start):
        line_end = text.find("\n", at) + 1 or len(text)
        return start, min(start + len(token), line_end)
    return at, min(at + 1, len(text))


def _rows(left: _Text, right: _Text, same: int, *, goes_on: bool) -> Iterator[Block]:
    """`same` lines are equal at the top; the rest is aligned, unless one side only `goes_on` where the other ends."""
    yield from _equal(left, right, (0, same), 0, top=True, bottom=False)
    a, b = left.lines[same:], right.lines[same:]
    codes: list[tuple[str, int, int, int, int]] = [("replace", 0, len(a), 0, len(b))]
    if not goes_on and len(a) <= MOST_LINES and len(b) <= MOST_LINES:
        codes = list(SequenceMatcher(None, a, b, autojunk=False).get_opcodes())
    for code, a0, a1, b0, b1 in codes:
        if code == "equal":
            yield from _equal(left, right, (same + a0, same + a1), b0 - a0, top=False, bottom=a1 == len(a))
        else:
            parts = (
                left.part(same + a0, same + a1, changed=True),
                right.part(same + b0, same + b1, changed=True),
            )
            yield Block("changed", *parts, max(a1 - a0, b1 - b0))


def _equal(
    left: _Text, right: _Text, lines: tuple[int, int], shift: int, *, top: bool, bottom: bool
) -> Iterator[Block]:
    """Equal lines [first, stop) of the left (`shift` later on the right), the middle of a long run folded."""
    first, stop = lines
    head = first if top else first + CONTEXT
    tail = stop if bottom else stop - CONTEXT
    if tail - head <= 2:
        head = tail = stop
    for kind, low, high in (("same", first, head), ("folded", head, tail), ("same", tail, stop)):
        if low < high:
            parts = left.part(low, high), right.part(low + shift, high + shift)
            yield Block("folded" if kind == "folded" else "same", *parts, high - low)
