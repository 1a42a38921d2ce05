"""Reads a TOML file of a task into a type, and says where it doesn't fit.

The standard library's reader takes time quadratic in the number of parts of a dotted key (36 s for 64 kB), so such
keys are refused before it sees them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import msgspec.inspect

from tasks import values
from tasks.errors import TaskError
from tasks.reading import read_text, shown

T = TypeVar("T")

MAX_DOTTED: Final = 200
_PART = re.compile(r"[\w'\"-]+[ \t]*(\.?)[ \t]*")


def read_toml(folder: Path, relative: str, kind: type[T], limit: int) -> T:
    """The file as a `kind` (a msgspec Struct). Raises TaskError with the line or the key that is wrong."""
    place = folder / relative
    text = read_text(folder, relative, limit)
    _refuse_long_keys(text, place)
    try:
        data = tomllib.loads(text)
        values.check(data)
        return msgspec.convert(data, kind)
    except tomllib.TOMLDecodeError as error:
        raise TaskError(
            f"{place}: expected TOML, found a fault: {shown(str(error), 200)}; correct it"
        ) from None
    except RecursionError:
        raise TaskError(f"{place}: expected TOML, found arrays nested without end; flatten them") from None
    except msgspec.ValidationError as error:
        raise TaskError(f"{place}: {fault(error, kind)}") from None
    except ValueError as error:
        raise TaskError(f"{place}: expected plain TOML values, found {error}; correct it") from None


def fault(error: msgspec.ValidationError, kind: type) -> str:
    """msgspec's error ("Object contains unknown field `x` - at `$.prompt[0]`") as a sentence of ours, escaped."""
    text, _, path = str(error)[:400].partition(" - at ")
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    where = f" at {path.strip('`')}" if path else ""
    if unknown := re.fullmatch(r"Object contains unknown field (.*)", text):
        known = ", ".join(_keys(kind, path.strip("`")))
        return f"expected one of the keys {known}{where}, found {unknown[1]}; remove or rename it"
    if missing := re.fullmatch(r"Object missing required field (.*)", text):
        return f"expected the key {missing[1]}{where}, found none; add it"
    text = text.replace("Expected", "expected", 1).replace(", got ", ", found ", 1)
    return f"{text.replace('Invalid enum value', 'expected a known value, found')}{where}; correct it"


def _keys(kind: type, path: str) -> list[str]:
    node: Any = msgspec.inspect.type_info(kind)
    for step in re.findall(r"[\w-]+|\[", path.removeprefix("$")):
        options = getattr(node, "types", (node,))
        node = next((o for o in options if not isinstance(o, msgspec.inspect.NoneType)), node)
        if isinstance(node, msgspec.inspect.StructType):
            node = next((f.type for f in node.fields if f.encode_name == step), node)
        elif step == "[":
            node = getattr(node, "item_type", getattr(node, "value_type", node))
    options = getattr(node, "types", (node,))
    return [f.encode_name for o in options if isinstance(o, msgspec.inspect.StructType) for f in o.fields]


def _refuse_long_keys(text: str, place: Path) -> None:
    run, end = 0, -1
    for part in _PART.finditer(text):
        run = run + 1 if part.start() == end else 1
        end = part.end() if part[1] else -1
        if run > MAX_DOTTED:
            line = text.count("\n", 0, part.start()) + 1
            raise TaskError(
                f"{place}, line {line}: expected keys of a few parts, found more than {MAX_DOTTED} joined by dots; "
                "break the line up"
            )
