"""Reads cases.jsonl: one named case a line, with what it expects and nothing that its judge doesn't use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from tasks import values
from tasks.constraints_spec import CONSTRAINTS, LARGEST, NUMBERS, SMALLEST
from tasks.errors import TaskError
from tasks.manifest import IDENTIFIER, NAME
from tasks.reading import read_text, shown
from tasks.schemas import check_schema
from tasks.toml import fault
from tasks.tools import parameters
from tasks.types import Case, Judge

MAX_CASES_BYTES: Final = 8 << 20
MAX_LINE_CHARACTERS: Final = 1 << 20
MAX_CASES: Final = 1_000
MAX_WHY: Final = 400

FIELDS: Final[dict[Judge, frozenset[str]]] = {
    "function": frozenset({"args", "returns", "raises"}),
    "program": frozenset({"stdin", "stdout"}),
    "constraints": frozenset({"constraint", *NUMBERS}),
    "checks": frozenset({"check"}),
    "tool_call": frozenset({"tool", "schema"}),
}
"""What a case may hold beside its name, why and turn, by judge."""


def read_cases(
    folder: Path, judge: Judge, tools: tuple[dict[str, Any], ...] = (), turns: int = 1
) -> tuple[Case, ...]:
    """The cases of the folder, in their order. tools: the task's; turns: of its prompts. Raises TaskError with the line
    that is wrong."""
    file = folder / "cases.jsonl"
    lines = read_text(folder, "cases.jsonl", MAX_CASES_BYTES).split("\n")
    cases: dict[str, Case] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        case = _case(line, place)
        if case.name in cases:
            raise TaskError(
                f"{place}: expected every case to have its own name, found {case.name} twice; rename one"
            )
        _fits_judge(case, judge, place)
        if case.turn is not None and not 1 <= case.turn <= turns:
            raise TaskError(
                f"{place}: expected turn from 1 to {turns}, as many as the prompts have, found {case.turn}; correct it"
            )
        if judge == "tool_call":
            _tool_call(case, tools, place)
        cases[case.name] = case
        if len(cases) > MAX_CASES:
            raise TaskError(f"{place}: expected at most {MAX_CASES:,} cases, found more; split the task")
    if not cases:
        raise TaskError(
            f"{file}: expected a case a line, found none: a task without cases would pass everything; add some"
        )
    return tuple(cases.values())


def _case(line: str, place: str) -> Case:
    if len(line) > MAX_LINE_CHARACTERS:
        raise TaskError(
            f"{place}: expected at most {MAX_LINE_CHARACTERS:,} characters, found {len(line):,}; shorten it"
        )
    try:
        value = values.parse(line)
    except ValueError as error:
        raise TaskError(f"{place}: expected a JSON object, found {error}; correct it") from None
    try:
        case = msgspec.convert(value, Case)
    except msgspec.ValidationError as error:
        raise TaskError(f"{place}: {fault(error, Case)}") from None
    if not NAME.fullmatch(case.name):
        raise TaskError(
            f"{place}: expected name in a-z, 0-9, _ and -, 64 at most, found {shown(case.name)}; rename it"
        )
    if len(case.why) > MAX_WHY or (case.why and not case.why.isprintable()):
        raise TaskError(f"{place}: expected why to be one line of at most {MAX_WHY} characters; shorten it")
    return case


def _fits_judge(case: Case, judge: Judge, place: str) -> None:
    given = {
        name
        for name in case.__struct_fields__
        if name not in ("name", "why", "turn") and _is_given(case, name)
    }
    strange = sorted(given - FIELDS[judge])
    if strange:
        raise TaskError(
            f'{place}: expected only {", ".join(sorted(FIELDS[judge]))} in a case of judge = "{judge}", '
            f"found {', '.join(strange)}; remove it or change the judge"
        )
    if judge == "function":
        _function(case, given, place)
    elif judge == "program":
        if case.stdin is None or case.stdout is None:
            raise TaskError(
                f"{place}: expected both stdin and stdout, found {', '.join(given) or 'neither'}; add the other"
            )
    elif judge == "constraints":
        _constraint(case, given, place)
    elif judge == "checks" and (case.check is None or not IDENTIFIER.fullmatch(case.check)):
        raise TaskError(
            f"{place}: expected check, the name of a function of the checks file, "
            f"found {'none' if case.check is None else shown(case.check)}; name it"
        )


def _function(case: Case, given: set[str], place: str) -> None:
    if case.args is None or ("returns" in given) == ("raises" in given):
        raise TaskError(
            f"{place}: expected args and one of returns and raises, "
            f"found {', '.join(sorted(given)) or 'none of them'}; a case that expects nothing would pass anything"
        )
    if case.raises is not None and not IDENTIFIER.fullmatch(case.raises):
        raise TaskError(
            f"{place}: expected raises to be the name of an exception's type such as ValueError, "
            f"found {shown(case.raises)}; correct it"
        )


def _tool_call(case: Case, tools: tuple[dict[str, Any], ...], place: str) -> None:
    if case.tool is None or parameters(tools, case.tool) is None:
        named = ", ".join(tool["function"]["name"] for tool in tools)
        raise TaskError(
            f"{place}: expected tool to name one of the task's tools ({named}), "
            f"found {'none' if case.tool is None else shown(case.tool)}; name it"
        )
    if case.schema is not None:
        check_schema(case.schema, place)


def _constraint(case: Case, given: set[str], place: str) -> None:
    if case.constraint not in CONSTRAINTS:
        raise TaskError(
            f"{place}: expected constraint to be one of {', '.join(CONSTRAINTS)}, "
            f"found {shown(str(case.constraint))}; correct it"
        )
    needed = set(CONSTRAINTS[case.constraint])
    if given - {"constraint"} != needed:
        raise TaskError(
            f"{place}: expected {' and '.join(CONSTRAINTS[case.constraint]) or 'no numbers'} with the constraint "
            f"{case.constraint}, found {', '.join(sorted(given - {'constraint'})) or 'none'}; correct it"
        )
    for name in needed:
        number = getattr(case, name)
        if not SMALLEST[name] <= number <= LARGEST:
            raise TaskError(
                f"{place}: expected {name} from {SMALLEST[name]} to {LARGEST:,}, found {number}; correct it"
            )
    for low, high in (("min", "max"), ("start", "stop")):
        if {low, high} <= needed and getattr(case, low) > getattr(case, high):
            found = f"{getattr(case, low)} and {getattr(case, high)}"
            raise TaskError(f"{place}: expected {low} not above {high}, found {found}; swap them")


def _is_given(case: Case, name: str) -> bool:
    value: Any = getattr(case, name)
    return value is not msgspec.UNSET if name == "returns" else value is not None
