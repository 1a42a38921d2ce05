"""The fenced code blocks of an answer, found by CommonMark's rules and not by hand.

Longer outer fences, tildes, fences in lists and quotes, and odd info strings are what a search for three backticks
gets wrong.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from markdown_it import MarkdownIt

MAX_CHARACTERS: Final = 2 << 20
"""More than any budget of tokens fills; a longer text is not read."""
_MAX_REPAIRS: Final = 50
_BARE_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*")
_PARSER = MarkdownIt("zero").enable(["fence", "list", "blockquote"])


class Block(msgspec.Struct, frozen=True):
    """One fenced block. `tag`: first word of its info string, lower case; `lines`: [start, stop) with the fences.

    closed: it has a closing fence. at_end: it runs to the end of the text.
    """

    tag: str
    content: str
    start: int
    stop: int
    closed: bool
    at_end: bool


def normalise(text: str) -> str:
    """`text` with LF alone as its line end, as CommonMark and every compiler read it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def blocks(text: str) -> list[Block]:
    """The fenced blocks of `text` (normalised) in order. Raises ValueError over 2 Mi characters."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"expected at most {MAX_CHARACTERS:,} characters, found {len(text):,}")
    lines = text.split("\n")
    length = len(lines)
    while length and not lines[length - 1].strip():
        length -= 1
    found: list[Block] = []
    first = 0
    for _ in range(_MAX_REPAIRS):
        repair = None
        for token in _PARSER.parse("\n".join(lines[first:])):
            if token.type != "fence" or token.map is None:
                continue
            start, stop = (first + line for line in token.map)
            closed = stop - start > 1 and _closes(lines[stop - 1], token.markup)
            at_end = stop >= length
            found.append(Block(_tag(token.info), token.content, start, stop, closed, at_end))
            if not closed and not at_end and stop < length and _closes(lines[stop], token.markup):
                # A list ended the block, and its closing fence, written without the list's indent, would open another.
                repair = stop + 1
                break
        if repair is None:
            break
        found[-1] = msgspec.structs.replace(found[-1], closed=True, stop=repair)
        first = repair
    return found


def _closes(line: str, markup: str) -> bool:
    bare = _BARE_FENCE.fullmatch(line.lstrip(" \t>"))
    return bare is not None and bare[1][0] == markup[0] and len(bare[1]) >= len(markup)


def _tag(info: str) -> str:
    word = re.match(r"[{.\s]*([\w+#-]+)", info)
    return word[1].lower() if word else ""
