"""JSON as a task may hold it: strict, bounded, and no key given twice.

Python's own reader is used, not a faster one, since it keeps integers of any size exact and calls a hook for every
object: a key given twice is a mistake in a case, and the value that silently wins would be graded.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

MAX_DEPTH: Final = 32
MAX_NODES: Final = 100_000
MAX_INT_BITS: Final = 4_096


def parse(line: str) -> Any:
    """The JSON value in `line`. Raises ValueError with a phrase that fits after "found"."""
    try:
        value = json.loads(line, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting") from None
    check(value)
    return value


def check(value: Any) -> None:
    """Raises ValueError where `value` is too deep, too large, or holds what can't be sent or compared exactly."""
    pending: list[tuple[Any, int]] = [(value, 1)]
    nodes = 0
    while pending:
        node, depth = pending.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels of nesting")
        if nodes > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES:,} values")
        match node:
            case dict():
                pending.extend((part, depth + 1) for pair in node.items() for part in pair)
            case list():
                pending.extend((part, depth + 1) for part in node)
            case str():
                _text(node)
            case bool() | None:
                pass
            case int():
                if node.bit_length() > MAX_INT_BITS:
                    raise ValueError(f"an integer of more than {MAX_INT_BITS:,} bits")
            case float():
                if not math.isfinite(node):
                    raise ValueError("a number that is not finite")
            case _:
                raise ValueError(f"a value of type {type(node).__name__}")


def _text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair, which no UTF-8 text can hold") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {key[:60]!a} twice")
        made[key] = value
    return made


def _constant(name: str) -> Any:
    raise ValueError(f"{name}, which is no JSON and equals nothing")
