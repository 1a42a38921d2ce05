"""Where the thinking ends and the answer begins.

A draft inside the thinking part is not the answer (omlx#2661), and the tag may stand in the answer as a word: in a
string of the program, or in the sentence that explains it.
"""

from __future__ import annotations

import bisect
import re
from typing import Final

import msgspec

from evals.fences import blocks, normalise

_TAG = re.compile(r"</?think>")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*[\w{.]", re.MULTILINE)
"""The opening fence of a block with a tag."""
_QUOTES: Final = "'\"`"
_MAX_ROUNDS: Final = 5


class FinalPart(msgspec.Struct, frozen=True):
    """What follows the thinking; line ends are LF. open: the thinking never closed, `text` is what was before."""

    text: str
    open: bool


def final_part(text: str) -> FinalPart:
    """The answer without its thinking, whether or not the opening tag is part of the answer (a template may hold it).

    A tag in quotes, or inside a closed code block with other code on its line, is text. Raises ValueError over
    2 Mi characters.
    """
    rest = normalise(text)
    for _ in range(_MAX_ROUNDS):
        end = _last_close(rest)
        if end is None:
            break
        rest = rest[end:]
    opening = _first_open(rest)
    return FinalPart(rest, False) if opening is None else FinalPart(rest[:opening], True)


def _last_close(text: str) -> int | None:
    """Offset just after the last closing tag that isn't text, or None."""
    if "</think>" not in text:
        return None
    inside = _Lines(text)
    opens = text.lstrip().startswith("<think>")
    last_fence = max((fence.start() for fence in _FENCE.finditer(text)), default=-1)
    last = None
    swallowed = None
    for tag in _TAG.finditer(text):
        if tag[0] != "</think>" or _quoted(text, tag):
            continue
        if not inside.code(tag):
            last = tag.end()
        elif swallowed is None and inside.alone(tag) and (opens or tag.end() < last_fence):
            swallowed = tag.end()  # by the fence of a draft that was never closed
    return last if last is not None else swallowed


def _first_open(text: str) -> int | None:
    """Offset of the first opening tag that begins a line outside code, or None."""
    if "<think>" not in text:
        return None
    inside = _Lines(text)
    for tag in _TAG.finditer(text):
        if tag[0] == "<think>" and inside.begins(tag) and not inside.code(tag):
            return tag.start()
    return None


def _quoted(text: str, tag: re.Match[str]) -> bool:
    before, after = text[tag.start() - 1 : tag.start()], text[tag.end() : tag.end() + 1]
    return before == after and before != "" and before in _QUOTES


class _Lines:
    """Which lines of a text are code in a closed block, for tags asked after in the order of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        closed = [block for block in blocks(text) if block.closed]
        self.starts = [block.start for block in closed]
        self.stops = [block.stop for block in closed]
        self.line = 0
        self.offset = 0

    def code(self, tag: re.Match[str]) -> bool:
        self.line += self.text.count("\n", self.offset, tag.start())
        self.offset = tag.start()
        at = bisect.bisect_right(self.starts, self.line) - 1
        return at >= 0 and self.line < self.stops[at]

    def alone(self, tag: re.Match[str]) -> bool:
        return self.begins(tag) and not self.text[tag.end() : self.text.find("\n", tag.end())].strip()

    def begins(self, tag: re.Match[str]) -> bool:
        return not self.text[self.text.rfind("\n", 0, tag.start()) + 1 : tag.start()].strip()
