"""Finds the tool call in an answer's text, in the syntaxes of the model families, and holds it against a task's cases.

Qwen's `<tool_call>` holds a JSON object, or with Qwen3-Coder and Qwen3.5 a function and its parameters as tags, whose
values are typed by the tool's own schema. A bare JSON object with a name and arguments, alone or as the only code
block, is taken too. What can go wrong has a name of its own, which begins what was observed. A call inside the thinking
is a draft and no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from evals.fences import blocks
from evals.thinking import final_part
from evals.types import CaseGrade, Outcome
from evals.values import cut
from tasks import values
from tasks.reading import shown
from tasks.schemas import MAX_ARGUMENT_NODES, violation
from tasks.tools import parameters
from tasks.types import Case, Task

Fault = Literal[
    "no call",
    "call in thinking",
    "call cut off",
    "call not closed",
    "several calls",
    "malformed call",
    "duplicate key",
    "not a finite number",
    "too large",
    "unknown tool",
    "wrong tool",
    "extra key",
    "missing key",
    "wrong type",
    "wrong value",
]
"""What can be wrong with a call; the first that applies, in this order."""

MAX_CALL_CHARACTERS: Final = 200_000
_FUNCTION: Final = "<function="
_OPENING: Final = re.compile(r"<tool_call>|<function=")
_KEYWORDS: Final[dict[str, Fault]] = {
    "additionalProperties": "extra key",
    "required": "missing key",
    "type": "wrong type",
}


class Call(msgspec.Struct, frozen=True):
    """One call: the tool's name and its arguments, plain JSON."""

    name: str
    arguments: dict[str, Any]


class Faulty(msgspec.Struct, frozen=True):
    """No call that could be made: what is wrong, and a few words more."""

    fault: Fault
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.fault}: {self.detail}" if self.detail else self.fault


def find_call(text: str, tools: Sequence[dict[str, Any]], truncated: bool = False) -> Call | Faulty:
    """The one call in an answer. truncated: the budget ended it. Never raises for what the text holds."""
    try:
        final = final_part(text)
    except ValueError as error:
        return Faulty("too large", str(error))
    if final.open:
        return Faulty("call cut off" if truncated else "no call", "the thinking never closed")
    found = _calls(final.text)
    if not found:
        if _OPENING.search(final.text):
            return Faulty("call cut off" if truncated else "call not closed")
        if _OPENING.search(text):
            return Faulty("call in thinking")
        return Faulty("no call")
    if len(found) > 1:
        return Faulty("several calls", str(len(found)))
    body = found[0]
    if len(body) > MAX_CALL_CHARACTERS:
        return Faulty("too large", f"{len(body):,} characters")
    if not body.lstrip().startswith(_FUNCTION):
        return _json_call(body)
    parts, rest = _between(body, _FUNCTION, "</function>")
    name, angle, inner = parts[0].partition(">") if len(parts) == 1 else ("", "", "")
    if not angle or rest.strip():
        return Faulty("malformed call", "no whole function")
    return _tagged(name, inner, tools)


def grade_call(case: Case, task: Task, call: Call | Faulty) -> CaseGrade:
    """Whether the call is what the case asks for: to its tool, with arguments that fit its schema, or where it has none
    the tool's own, in which a key that the tool doesn't name is one too many unless the schema allows for more."""
    assert case.tool is not None
    expected = cut(
        f"{case.tool} with {json.dumps(case.schema, ensure_ascii=False)}" if case.schema else case.tool
    )
    if isinstance(call, Faulty):
        outcomes: dict[Fault, Outcome] = {
            "no call": "no_program",
            "call in thinking": "no_program",
            "call cut off": "truncated",
        }
        return CaseGrade(case.name, outcomes.get(call.fault, "fail"), cut(str(call)), expected)
    fault = _fault(case, task, call)
    shown_call = cut(f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}")
    return CaseGrade(
        case.name, "fail" if fault else "pass", cut(str(fault)) if fault else shown_call, expected
    )


def _fault(case: Case, task: Task, call: Call) -> Faulty | None:
    own = parameters(task.tools, call.name)
    if own is None:
        return Faulty("unknown tool", shown(call.name))
    if call.name != case.tool:
        return Faulty("wrong tool", shown(call.name))
    schema: dict[str, Any] = own if case.schema is None else case.schema
    if case.schema is None and "additionalProperties" not in own:
        schema = {**own, "additionalProperties": False}
    found = violation(schema, call.arguments)
    if found is None:
        return None
    return Faulty(_KEYWORDS.get(found.keyword, "wrong value"), f"{found.path}: {found.message}")


def _calls(text: str) -> list[str]:
    """The bodies of all calls: tagged ones, functions without their wrapper, or the whole text as JSON."""
    wrapped, rest = _between(text, "<tool_call>", "</tool_call>")
    found: list[str] = []
    for body in (*wrapped, rest):
        functions = [f"{_FUNCTION}{part}</function>" for part in _between(body, _FUNCTION, "</function>")[0]]
        several = len(functions) > 1 or body is rest
        found += functions if several else [body]
    if found:
        return found
    alone = text.strip()
    if not alone.startswith("{"):
        fenced = [
            block.content.strip() for block in blocks(text) if block.closed and block.tag in ("", "json")
        ]
        alone = fenced[0] if len(fenced) == 1 else ""
    return [alone] if alone.startswith("{") and '"name"' in alone and '"arguments"' in alone else []


def _between(text: str, opening: str, closing: str) -> tuple[list[str], str]:
    """What stands between each opening and the next closing, and the text without those; linear in its length."""
    found, rest, at = [], [], 0
    while (start := text.find(opening, at)) >= 0:
        stop = text.find(closing, start + len(opening))
        if stop < 0:
            break
        found.append(text[start + len(opening) : stop])
        rest.append(text[at:start])
        at = stop + len(closing)
    return found, "".join([*rest, text[at:]])


def _json_call(body: str) -> Call | Faulty:
    found = _value(body.strip())
    if isinstance(found, Faulty):
        return found
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return Faulty("malformed call", "no object with a name and arguments")
    arguments = found.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _value(arguments)
        if isinstance(arguments, Faulty):
            return arguments
    if not isinstance(arguments, dict) or set(found) - {"name", "arguments", "id"}:
        return Faulty("malformed call", "no object with a name and arguments")
    return Call(found["name"], arguments)


def _tagged(name: str, body: str, tools: Sequence[dict[str, Any]]) -> Call | Faulty:
    parts, rest = _between(body, "<parameter=", "</parameter>")
    if rest.strip() or not all(">" in part for part in parts):
        return Faulty("malformed call", "something beside the parameters")
    schema = parameters(tuple(tools), name) or {}
    properties = schema.get("properties", {})
    arguments: dict[str, Any] = {}
    for part in parts:
        key, _, text = part.partition(">")
        text = text.removeprefix("\n").removesuffix("\n")
        if key in arguments:
            return Faulty("duplicate key", shown(key))
        value = _typed(text, properties.get(key))
        if isinstance(value, Faulty):
            return value
        arguments[key] = value
    return Call(name, arguments)


def _typed(text: str, schema: Any) -> Any:
    """A parameter's text as the tool's schema types it: a string as it is, anything else as JSON where it is JSON."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    if kinds == ["string"] or (not kinds and not (isinstance(schema, dict) and "enum" in schema)):
        return text
    lowered = text.strip()
    value = _value(lowered.lower() if lowered in ("True", "False", "None") else lowered)
    if isinstance(value, Faulty):
        return text if value.fault == "malformed call" else value
    return (
        text if isinstance(value, str) or (isinstance(value, (dict, list)) and "string" in kinds) else value
    )


def _value(text: str) -> Any:
    """The JSON in a text, or what is wrong with it."""
    try:
        value = values.parse(text)
    except ValueError as error:
        said = str(error)
        if said.endswith("twice"):
            return Faulty("duplicate key", said)
        if "equals nothing" in said or "not finite" in said:
            return Faulty("not a finite number", said)
        return Faulty("too large" if said.startswith("more than") else "malformed call", cut(said))
    return (
        Faulty("too large", f"more than {MAX_ARGUMENT_NODES:,} values")
        if _nodes(value) > MAX_ARGUMENT_NODES
        else value
    )


def _nodes(value: Any) -> int:
    pending, count = [value], 0
    while pending:
        node = pending.pop()
        count += 1
        pending += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return count
