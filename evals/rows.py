"""Turns rows of HumanEval's and MBPP's shape into the parts of a task. Pure: no file is read or written here.

A row's checks stay its own code. They are written into the task's checks file with a function for each, which the
grader runs in a second sandbox (`sandbox.relay`); nothing of a row is run or compiled here.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

Shape = Literal["humaneval", "mbpp"]

COLUMNS: Final[dict[Shape, tuple[str, ...]]] = {
    "humaneval": ("task_id", "prompt", "entry_point", "canonical_solution", "test"),
    "mbpp": ("task_id", "code", "test_list"),
}
"""What a row must have to be of a shape; mbpp also has its question in `text` or `prompt`."""
MAX_CHARACTERS: Final = 200_000
MAX_TESTS: Final = 200
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w{0,79}", re.ASCII)
_RESERVED: Final = frozenset({"check", "run_check", "candidate", "random"})


class RowError(ValueError):
    """A row that no task can be made of; the message says what was expected and found."""


class Parts(msgspec.Struct, frozen=True):
    """What a task's folder will hold. checks: Python, with a function for each of `cases` (name → what it checks)."""

    row: str
    name: str
    entry: str
    prompt: str
    gold: str
    checks: str
    cases: dict[str, str]


def shape_of(columns: frozenset[str]) -> Shape:
    """The shape of rows with these columns. Raises RowError where it is neither."""
    for shape, needed in COLUMNS.items():
        if columns.issuperset(needed) and (shape == "humaneval" or columns & {"text", "prompt"}):
            return shape
    known = "; ".join(f"{shape}: {', '.join(needed)}" for shape, needed in COLUMNS.items())
    raise RowError(
        f"expected the columns of {known} and text or prompt; found {', '.join(sorted(columns))[:300]}"
    )


def parts(row: Mapping[str, Any], shape: Shape) -> Parts:
    """The parts of a task from a row. Raises RowError."""
    return _PARTS[shape](row)


def _humaneval(row: Mapping[str, Any]) -> Parts:
    prompt, test, entry = _text(row, "prompt"), _text(row, "test"), _entry(_text(row, "entry_point"))
    if not re.search(r"^def +check *\(", test, re.MULTILINE):
        raise RowError("expected test to define check(candidate), found no such function")
    checks = (
        f"{prompt.rstrip()}\n\n\n{test.strip()}\n\n\n"
        f"def run_check(candidate):\n"
        f"    global {entry}\n"
        f"    import random\n\n"
        f"    random.seed(0)\n"
        f"    {entry} = candidate\n"
        f"    check(candidate)\n"
    )
    identity = _text(row, "task_id")
    return Parts(
        row=identity,
        name=_name("humaneval", identity),
        entry=entry,
        prompt=f"Complete this Python program. Answer with all of it in one code block, its imports and what stands "
        f"above {entry} included.\n\n```python\n{prompt.strip()}\n```",
        gold=f"{prompt}{_text(row, 'canonical_solution')}".rstrip() + "\n",
        checks=checks,
        cases={"run_check": f"the checks of {identity}"},
    )


def _mbpp(row: Mapping[str, Any]) -> Parts:
    code, identity = _text(row, "code"), str(row.get("task_id", ""))
    tests = [_line(test) for test in _list(row, "test_list")]
    setup = [_line(text) for text in (row.get("test_setup_code"), *_list(row, "test_imports", 0)) if text]
    entry = _tested(code, tests)
    listed = "".join(f"    {test!a},\n" for test in tests)
    functions = "".join(
        f"\n\ndef assert_{i}(candidate):\n    run_check(candidate, {i - 1})\n"
        for i in range(1, len(tests) + 1)
    )
    checks = (
        "\n".join(setup) + f"\n\nTESTS = (\n{listed})\n\n\n"
        f"def run_check(candidate, which):\n"
        f"    import random\n\n"
        f"    random.seed(0)\n"
        f"    globals()[{entry!a}] = candidate\n"
        f"    exec(TESTS[which], globals())\n" + functions
    )
    question = _text(row, "text" if row.get("text") else "prompt").strip()
    examples = "\n".join(tests)
    return Parts(
        row=identity,
        name=_name("mbpp", identity),
        entry=entry,
        prompt=f"{question} Call the function {entry}. It must pass these tests:\n\n```python\n{examples}\n```",
        gold=code.strip() + "\n",
        checks=checks.lstrip("\n"),
        cases={f"assert_{i}": test for i, test in enumerate(tests, 1)},
    )


_PARTS: Final[dict[Shape, Callable[[Mapping[str, Any]], Parts]]] = {"humaneval": _humaneval, "mbpp": _mbpp}


def returns_none(parts: Parts) -> str:
    """The gold program with its return value replaced by None: what every check worth its name refuses."""
    return (
        f"{parts.gold}\n\n_complete = {parts.entry}\n\n\n"
        f"def {parts.entry}(*args, **kwargs):\n    _complete(*args, **kwargs)\n    return None\n"
    )


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        found = "an empty text" if isinstance(value, str) else type(value).__name__
        raise RowError(f"expected {column} to be a text, found {found}")
    return _line(value)


def _line(value: object) -> str:
    if not isinstance(value, str):
        raise RowError(f"expected a text, found {type(value).__name__}")
    if len(value) > MAX_CHARACTERS or "\0" in value:
        raise RowError(f"expected at most {MAX_CHARACTERS:,} characters and no NUL, found {len(value):,}")
    return value.replace("\r\n", "\n").replace("\r", "\n")


def _list(row: Mapping[str, Any], column: str, least: int = 1) -> list[Any]:
    value = row.get(column) or []
    if not isinstance(value, list) or not least <= len(value) <= MAX_TESTS:
        found = f"{len(value)}" if isinstance(value, list) else type(value).__name__
        raise RowError(f"expected {column} to be a list of {least} to {MAX_TESTS} texts, found {found}")
    return value


def _entry(name: str) -> str:
    if not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name) or name in _RESERVED:
        raise RowError(f"expected the name of a function, found {name[:60]!a}")
    return name


def _tested(code: str, tests: list[str]) -> str:
    """The function of `code` that the tests call."""
    for name in reversed(re.findall(r"^def +([A-Za-z_]\w*)", code, re.MULTILINE)):
        if all(re.search(rf"(?<![\w.]){name} *\(", test) for test in tests):
            return _entry(name)
    raise RowError(
        "expected every test to call a function that code defines, found none that all of them call"
    )


def _name(prefix: str, identity: str) -> str:
    slug = re.sub(r"[^a-z0-9_-]+", "-", identity.lower()).strip("-")
    name = slug if slug.startswith(prefix) else f"{prefix}-{slug}"
    if not slug or len(name) > 64:
        raise RowError(f"expected a task_id that a name can be made of, found {identity[:60]!a}")
    return name
