"""JSON schemas of a task's tools and cases, held to what can be checked in bounded time.

A folder may come from anybody, and so may an answer. `$ref` and what needs it could loop, and a pattern can take for
ever on a short text: keywords outside the list are refused, and patterns are matched with a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tasks.errors import TaskError
from tasks.reading import shown

MAX_SCHEMA_NODES: Final = 500
MAX_SCHEMA_DEPTH: Final = 16
MAX_PATTERN: Final = 500
PATTERN_S: Final = 0.5
"""Seconds that the patterns of one check may take together."""
MAX_ARGUMENT_NODES: Final = 2_000
"""Values in the arguments of one call; more are a fault of the answer."""

_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "$schema", "deprecated", "format"}
)
_MAPS: Final = frozenset({"properties"})
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_ONES: Final = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames"})
_PLAIN: Final = frozenset(
    """type enum const required minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
    minItems maxItems uniqueItems minProperties maxProperties minContains maxContains""".split()  # noqa: SIM905
)
KEYWORDS: Final = _ANNOTATIONS | _MAPS | _LISTS | _ONES | _PLAIN


class Violation(msgspec.Struct, frozen=True):
    """Where a value breaks a schema. path: `$.city`; keyword: the schema's that it breaks; message: bounded."""

    path: str
    keyword: str
    message: str


def check_schema(schema: Any, place: str) -> None:
    """Raises TaskError where `schema` isn't a JSON schema (draft 2020-12) of the keywords known here."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    nodes = 0
    for node, depth in _schemas(schema):
        nodes += 1
        if nodes > MAX_SCHEMA_NODES or depth > MAX_SCHEMA_DEPTH:
            raise TaskError(
                f"{place}: expected a schema of at most {MAX_SCHEMA_NODES} parts, nested at most {MAX_SCHEMA_DEPTH} "
                "deep, found more; simplify it"
            )
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise TaskError(
                f"{place}: expected a schema to be an object, found {type(node).__name__}; correct it"
            )
        if strange := sorted(set(map(str, node)) - KEYWORDS):
            raise TaskError(
                f"{place}: expected keywords of {', '.join(sorted(KEYWORDS - _ANNOTATIONS))}, "
                f"found {shown(strange[0])}; write it out without"
            )
        _check_pattern(node.get("pattern"), place)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise TaskError(
            f"{place}: expected a JSON schema, found a fault at {_path(error.absolute_path)}: "
            f"{shown(error.message, 200)}; correct it"
        ) from None


def violation(schema: Any, value: Any) -> Violation | None:
    """The first fault of a value, None where it fits. `schema` has passed `check_schema`, `value` is plain JSON."""
    from jsonschema.exceptions import best_match

    validator = _validator(schema)
    try:
        found = best_match(validator.iter_errors(value))
    except (TimeoutError, OverflowError, RecursionError) as error:
        what = "a pattern took too long" if isinstance(error, TimeoutError) else "numbers too large to check"
        return Violation("$", "pattern" if isinstance(error, TimeoutError) else "multipleOf", what)
    if found is None:
        return None
    return Violation(_path(found.absolute_path), str(found.validator), shown(found.message, 160))


def _validator(schema: Any) -> Any:
    """A validator whose patterns share `PATTERN_S` seconds; TimeoutError comes out of it when they are spent."""
    import regex
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    left = PATTERN_S

    def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[Any]:
        nonlocal left
        if not isinstance(instance, str):
            return
        began = time.monotonic()
        matched = regex.search(wanted, instance, timeout=max(left, 0.001))
        left -= time.monotonic() - began
        if matched is None:
            yield ValidationError(f"{shown(instance)} does not match {shown(wanted)}")

    return extend(Draft202012Validator, {"pattern": pattern})(schema)


def _check_pattern(pattern: Any, place: str) -> None:
    import regex

    if not isinstance(pattern, str):
        return
    fault = f"{len(pattern):,} characters" if len(pattern) > MAX_PATTERN else ""
    if not fault:
        try:
            regex.compile(pattern)
        except (regex.error, OverflowError, RecursionError, ValueError) as error:
            fault = shown(str(error), 120)
    if fault:
        raise TaskError(
            f"{place}: expected a pattern of at most {MAX_PATTERN} characters that can be compiled, found {fault}; "
            "correct it"
        )


def _schemas(schema: Any) -> Iterator[tuple[Any, int]]:
    """A schema and all in it, with how deep each lies."""
    pending: list[tuple[Any, int]] = [(schema, 1)]
    while pending:
        node, depth = pending.pop()
        yield node, depth
        if not isinstance(node, dict):
            continue
        for key, inner in node.items():
            if key in _ONES:
                pending.append((inner, depth + 1))
            elif key in _LISTS and isinstance(inner, list):
                pending += ((part, depth + 1) for part in inner)
            elif key in _MAPS and isinstance(inner, dict):
                pending += ((part, depth + 1) for part in inner.values())


def _path(parts: Any) -> str:
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    cut = path if len(path) <= 80 else path[:80] + "…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]
