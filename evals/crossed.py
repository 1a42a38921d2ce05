"""Is this the answer to another prompt, in whole or from some place on? Slots that are mixed up look so.

One text stands for another where it is that other one, or where it follows its own reference for a while and then the
other one's to the end, or leaves and comes back with a piece of the other one in between. Facts only: two prompts of
one task may honestly have one answer, and programs share lines, so the piece has to be long (`PIECE`) and foreign (not
in the text that was to be expected).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from evals.align import common_prefix

WHOLE = 16
"""Characters from which on a whole answer that equals another's says something."""

CHUNK = 4
"""Characters from which on a chunk that one answer has too many and another too few, both otherwise as due, is one."""

MAX_CHUNK = 4_000
"""Characters of a chunk that are kept to be matched."""

PIECE = 80
"""Characters of another prompt's answer inside this one that no boilerplate explains: about twenty tokens."""


class Crossed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text is another prompt's answer: all of it, its tail from `at` on, or a piece at `at` (characters).

    received, lost: at `at` stands a chunk that the other answer lacks, or lacks one that stands in the other.
    """

    task: str
    prompt: str
    how: Literal["whole", "tail", "piece", "received", "lost"]
    at: int
    characters: int


def crossed(text: str, expected: str, others: Iterable[tuple[str, str, str]]) -> Crossed | None:
    """The first of `others` (task, prompt, its answer) that `text` is, or goes over to, where `expected` was due."""
    if text == expected:
        return None
    at = common_prefix(text, expected)
    for task, prompt, other in others:
        if other == expected:
            continue
        if text == other:
            if len(text) >= WHOLE:
                return Crossed(task, prompt, "whole", 0, len(text))
            continue
        piece = text[at : at + PIECE]
        start = other.find(piece) if len(piece) == PIECE and piece not in expected else -1
        if start < 0:
            continue
        length = common_prefix(text[at:], other[start:])
        if at + length == len(text) or start + length == len(other):
            return Crossed(task, prompt, "tail", at, length)
        rest = text[at + length :]
        if len(rest) >= PIECE and expected.endswith(rest):
            return Crossed(task, prompt, "piece", at, length)
    return None


class Shift(msgspec.Struct, frozen=True):
    """A text that is what was due but for one chunk, too many (more) or too few, at `at`."""

    more: bool
    at: int
    chunk: str

    def went_to(self, other: Shift) -> bool:
        """Whether the chunk that is lacking here is the one too many there. Where a chunk begins with what follows it,
        it can be cut out at several places, so that a rotation of it is the same."""
        return (
            not self.more
            and other.more
            and len(self.chunk) == len(other.chunk)
            and other.chunk in self.chunk + self.chunk
        )


def shifted(text: str, expected: str) -> Shift | None:
    """The one chunk by which `text` is longer or shorter than what was due, or None where it differs otherwise."""
    longer, shorter = (text, expected) if len(text) > len(expected) else (expected, text)
    size = len(longer) - len(shorter)
    at = common_prefix(longer, shorter)
    if not CHUNK <= size <= MAX_CHUNK or longer[at + size :] != shorter[at:]:
        return None
    return Shift(more=longer is text, at=at, chunk=longer[at : at + size])
