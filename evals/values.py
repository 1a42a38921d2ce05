"""Compares what a function returned with what a case expects, and shows both to people.

Values came out of a sandbox as exact built-in types, so no code of the program can take part. Exact means: True is
not 1, 1 is not 1.0, a tuple is not a list, NaN equals nothing, the order of a dict's keys doesn't count.
"""

from __future__ import annotations

import reprlib
from typing import Final

from tasks.types import Language

SHOWN: Final = 240
"""Most characters of a value in a record."""


def equal(expected: object, found: object, language: Language = "python") -> bool:
    """Whether the JSON value `expected` and `found` are the same by type and value.

    JavaScript has one type of number, so there 1 and 1.0 are the same; Lua has one kind of table, so there an empty
    list and an empty object are. Time is linear in the size of `expected`, whose depth the task's loader bounds.
    """
    if language == "javascript" and _number(expected) and _number(found):
        return bool(expected == found)
    if language == "lua" and found == [] and expected == {}:
        return True
    if type(expected) is not type(found):
        return False
    if isinstance(expected, list):
        assert isinstance(found, list)
        pairs = zip(expected, found, strict=False)
        return len(expected) == len(found) and all(equal(a, b, language) for a, b in pairs)
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        if len(expected) != len(found) or any(type(key) is not str for key in found):
            return False
        return all(key in found and equal(value, found[key], language) for key, value in expected.items())
    return expected == found


def show(value: object) -> str:
    """A short, printable text of any built-in value."""
    return cut(_SHORT.repr(value))


def cut(text: str, limit: int = SHOWN) -> str:
    """`text` on one line, printable, of at most `limit` characters."""
    head = text[: 2 * limit]
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in head)
    return plain if len(plain) <= limit and len(head) == len(text) else plain[:limit] + "…"


def _number(value: object) -> bool:
    return type(value) in (int, float)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 6, 120, 120
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 12

    def repr_int(self, value: int, level: int) -> str:
        if value.bit_length() > 256:
            return f"<an integer of {value.bit_length()} bits>"
        return repr(value)


_SHORT: Final = _Short()
