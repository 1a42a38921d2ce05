"""Reads a task's tools: what the model may call, as the chat template's `tools` and servers take it (OpenAI's form)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from tasks import values
from tasks.errors import TaskError
from tasks.reading import read_text, shown
from tasks.schemas import check_schema

MAX_TOOLS_BYTES: Final = 1 << 20
MAX_TOOLS: Final = 64
MAX_DESCRIPTION: Final = 8_000
TOOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class _Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    parameters: dict[str, Any]
    description: str = ""
    strict: bool | None = None


class _Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    function: _Function


def read_tools(folder: Path, relative: str) -> tuple[dict[str, Any], ...]:
    """The tools in a file of the folder: a JSON list of {"type": "function", "function": {…}}. Raises TaskError."""
    place = str(folder / relative)
    try:
        data = values.parse(read_text(folder, relative, MAX_TOOLS_BYTES))
    except ValueError as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"{place}: expected a JSON list of tools, found {error}; correct it") from None
    try:
        tools = msgspec.convert(data, tuple[_Tool, ...])
    except msgspec.ValidationError as error:
        raise TaskError(
            f'{place}: expected a list of {{"type": "function", "function": {{"name", "description", "parameters"}}}}, '
            f"found {shown(str(error), 200)}; correct it"
        ) from None
    if not 1 <= len(tools) <= MAX_TOOLS:
        raise TaskError(f"{place}: expected 1 to {MAX_TOOLS} tools, found {len(tools)}; correct the list")
    seen: set[str] = set()
    for tool in tools:
        made = tool.function
        if tool.type != "function" or not TOOL.fullmatch(made.name) or made.name in seen:
            raise TaskError(
                f"{place}: expected each tool to be of type function, with a name of its own in letters, digits, _, . "
                f"and -, found {shown(tool.type)} {shown(made.name)}; correct it"
            )
        if len(made.description) > MAX_DESCRIPTION:
            raise TaskError(
                f"{place}: expected a description of at most {MAX_DESCRIPTION:,} characters, "
                f"found {len(made.description):,} for {made.name}; shorten it"
            )
        if made.parameters.get("type") != "object":
            raise TaskError(
                f'{place}: expected the parameters of {made.name} to be a schema of type "object", '
                f"found {shown(str(made.parameters.get('type')))}; correct it"
            )
        check_schema(made.parameters, f"{place}, {made.name}")
        seen.add(made.name)
    assert isinstance(data, list)
    return tuple(data)


def parameters(tools: tuple[dict[str, Any], ...], name: str) -> dict[str, Any] | None:
    """The schema of a tool's arguments, None where there is no such tool."""
    found = next((tool["function"] for tool in tools if tool["function"]["name"] == name), None)
    return None if found is None else found["parameters"]
