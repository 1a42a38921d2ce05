"""A text cut into pieces, for where nobody knows its tokens: to find what was dropped, said twice, or goes in a loop.

Pieces stand in for ids: those that a stream delivered, or words with the white space before them, marks and line ends.
They are never shown as tokens.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from evals.types import Answer

_PIECE = re.compile(r"[^\S\n]*\w+|[^\S\n]*[^\w\s]|\n|[^\S\n]+")


class Pieces:
    """The pieces of some texts, by number; what `evals.diff.Tokens` asks for."""

    stop_ids: frozenset[int] = frozenset()
    control_ids: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def cut(self, text: str, cuts: Sequence[int] = ()) -> tuple[int, ...]:
        """A text's pieces, of so many characters each, or its words. Equal pieces have equal numbers, everywhere."""
        found = _at(text, cuts) if cuts else _PIECE.findall(text)
        numbers = tuple(zlib.crc32(piece.encode("utf-8", "surrogatepass")) for piece in found)
        self._texts.update(zip(numbers, found, strict=True))
        return numbers

    def text(self, token: int, /) -> str:
        return self._texts.get(token, "")


def readings(answer: Answer) -> tuple[tuple[int, ...], ...]:
    """What an answer is made of: its ids, or where it has none its text's words, and its stream's pieces too: one that
    brings several tokens at a time, here more and there fewer, hides what comes again."""
    if answer.ids:
        return (answer.ids,)
    cuts = whole_cuts(answer)
    words = Pieces().cut(answer.text)
    return (words, Pieces().cut(answer.text, cuts)) if cuts else (words,)


def whole_cuts(answer: Answer) -> tuple[int, ...]:
    """How a stream cut an answer's text, where that covers all of it; else nothing."""
    return answer.cuts if sum(answer.cuts) == len(answer.text) else ()


def _at(text: str, cuts: Sequence[int]) -> list[str]:
    found, at = [], 0
    for size in cuts:
        found.append(text[at : at + size])
        at += size
    return found
