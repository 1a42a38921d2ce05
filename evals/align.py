"""After two answers part: does the other one come back to the base, with tokens skipped or said twice?

Lost decoder state drops or doubles a span and then goes on word for word (mlx-lm#846). So does an honest answer that
leaves out a comment at a near-tie. The structure alone can't tell them apart, so this file gives facts and decides
nothing; a rule must ask for one of these as well:

- rank and gap: each token of a sound arm is the best, within the width noise, after the arm's *own* prefix. An
  honestly dropped sentence has no gap there; a lost span has one. Where margins were measured they decide.
- without margins: several spans, or a task with one exact answer (counting).

Spans are given only where all that follows the first divergence is explained by them: no token became another, both
answers end in step (or a budget cut one of them as many tokens away as the spans hold), every stretch between the
spans re-aligns for at least `STRETCH` tokens, and half of the base's rest re-aligns. A rewording is never a span.

The alignment is libgit2's, one token a line: 0.1 s for skips in 100,000 tokens, under 1 s for unrelated tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from evals.types import Answer, Realignment, Span

STRETCH = 3
"""Tokens that must re-align between two spans and after the last: 3 is what mlx-lm#846's shortest stretch has."""

MAX_SPANS = 64
FAR = 16
"""Tokens from which an inserted span counts as said again though its original stands farther back."""

SPAN_TEXT = 120
"""Characters of a span's text that are kept."""


class TokenText(Protocol):
    """The part of `evals.tokens.TokenTable` that a span's text needs."""

    def text(self, token: int, /) -> str: ...


class Hunk(NamedTuple):
    """base[i1:i2] stands where other[j1:j2] does; one of the two may be empty."""

    i1: int
    i2: int
    j1: int
    j2: int


def common_prefix(a: Sequence[object] | bytes, b: Sequence[object] | bytes) -> int:
    """Length of the common prefix, by halving and comparing slices: linear, and at the speed of C."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def realign(base: Answer, other: Answer, tokens: TokenText, limit: int = 200_000) -> Realignment:
    """Align what follows the first divergence of two answers' ids.

    At most `limit` tokens of each side are aligned; beyond that `bounded` is False and no span is given. Indices of
    skipped spans are into base.ids, of repeated ones into other.ids.
    """
    start = common_prefix(base.ids, other.ids)
    a, b = base.ids[: start + limit], other.ids[: start + limit]
    bounded = len(a) == len(base.ids) and len(b) == len(other.ids)
    hunks = _hunks(a, b, start)
    rest = len(a) - start
    skipped, repeated = _spans(hunks, start, base, other) if bounded else ([], [])
    last = hunks[-1] if hunks else Hunk(len(a), len(a), len(b), len(b))
    return Realignment(
        skipped=tuple(_span(h.i1, h.i2, a, tokens) for h in skipped[:MAX_SPANS]),
        repeated=tuple(
            _span(h.j1, h.j2, b, tokens, (h.j2 - h.j1) // _unit(h, b)) for h in repeated[:MAX_SPANS]
        ),
        realigned=(rest - sum(h.i2 - h.i1 for h in hunks)) / rest if rest else 0.0,
        bounded=bounded,
        replaced=sum(h.i2 - h.i1 for h in hunks if h.j2 > h.j1),
        tail=len(a) - last.i2 if bounded else 0,
    )


def _hunks(a: Sequence[int], b: Sequence[int], start: int) -> list[Hunk]:
    """The differences of a[start:] and b[start:] by libgit2 (Myers, with its heuristics for unrelated text).

    libgit2 moves a pure insertion or deletion as far down as it can stand: the first begins at the first divergence,
    and a repeated unit follows its original.
    """
    if len(a) == start or len(b) == start:
        return [Hunk(start, len(a), start, len(b))] if len(a) != len(b) else []
    import pygit2

    patch = pygit2.Patch.create_from(
        _lines(a[start:]),
        _lines(b[start:]),
        flag=int(pygit2.enums.DiffOption.FORCE_TEXT),
        context_lines=0,
        interhunk_lines=0,
    )
    found = []
    for h in patch.hunks:  # lines count from 1, and an empty side is numbered by the line before it
        i = start + h.old_start - (h.old_lines > 0)
        j = start + h.new_start - (h.new_lines > 0)
        found.append(Hunk(i, i + h.old_lines, j, j + h.new_lines))
    return found


def _lines(ids: Sequence[int]) -> bytes:
    return b"\n".join(map(b"%d".__mod__, ids)) + b"\n"


def _spans(hunks: list[Hunk], start: int, base: Answer, other: Answer) -> tuple[list[Hunk], list[Hunk]]:
    """The deletions and the repeats, if they explain everything after `start`; else two empty lists."""
    nothing: tuple[list[Hunk], list[Hunk]] = ([], [])
    end, cut = len(base.ids), 0
    if len(hunks) > 1 and (hunks[-1].i2, hunks[-1].j2) == (len(base.ids), len(other.ids)):
        *hunks, last = hunks
        end, cut = last.i1, (last.j2 - last.j1) - (last.i2 - last.i1)
        replaces = last.i2 > last.i1 and last.j2 > last.j1
        if replaces or (base if cut > 0 else other).finish != "length":
            return nothing
    skipped = [h for h in hunks if h.j1 == h.j2]
    repeated = [h for h in hunks if h.i1 == h.i2]
    if not hunks or len(skipped) + len(repeated) != len(hunks):
        return nothing
    if not all(_unit(h, other.ids, far=len(hunks) <= MAX_SPANS) for h in repeated):
        return nothing
    dropped = sum(h.i2 - h.i1 for h in skipped)
    kept = end - start - dropped
    stretches = [after.i1 - h.i2 for h, after in zip(hunks, [*hunks[1:], Hunk(end, end, 0, 0)], strict=True)]
    if min(stretches) < STRETCH or 2 * kept < end - start:
        return nothing
    said_again = sum(h.j2 - h.j1 for h in repeated)
    if not min(0, dropped - said_again) <= cut <= max(0, dropped - said_again):
        return nothing  # the budget takes away no more tokens than the spans moved
    return skipped, repeated


def _unit(h: Hunk, b: Sequence[int], *, far: bool = True) -> int:
    """Length of the unit that the insertion b[j1:j2] says again, right after its original or, if it is long, anywhere
    after it; 0 if it is no repeat."""
    size = h.j2 - h.j1
    for unit in range(1, size + 1):
        if size % unit == 0 and h.j1 >= unit and b[h.j1 - unit : h.j2 - unit] == b[h.j1 : h.j2]:
            return unit
    far = far and size >= FAR and b"\n" + _lines(b[h.j1 : h.j2]) in b"\n" + _lines(b[: h.j1])
    return size if far else 0


def _span(start: int, stop: int, ids: Sequence[int], tokens: TokenText, times: int = 1) -> Span:
    text = "".join(tokens.text(t) for t in ids[start : min(stop, start + SPAN_TEXT)])
    return Span(start=start, stop=stop, text=text[:SPAN_TEXT], times=times)
