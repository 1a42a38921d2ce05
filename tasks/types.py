"""The types of a task: the question in several wordings, and named cases with what they expect.

All are frozen. `tasks.folder` reads them from a folder and checks them; nothing downstream changes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

Kind = Literal["code", "prose", "exact"]
"""What sort of text an answer is; acceptance and speed are reported by kind."""

Judge = Literal["function", "program", "constraints", "checks"]
"""How an answer is judged: a function called case by case, a program fed on stdin, checked constraints, or a function
handed to checks that somebody wrote (a data set's own), which run in a sandbox of their own."""

Language = Literal["python", "lua", "javascript"]


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One wording of a task's question. `id` is unique in its task; `text` is the user's turn.

    `image` is a picture's path inside the task folder (`tasks.images`), or None.
    """

    id: str
    text: str
    image: str | None = None


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One named thing that a right answer gets right.

    Function judge: `args` and one of `returns` (compared exactly, by type and value) or `raises` (the name of
    the exception's type). Program judge: `stdin` and `stdout` (bytes as UTF-8, compared exactly). Constraints
    judge: `constraint` names one of `tasks.constraints_spec.CONSTRAINTS` and the rest are its numbers. Checks judge:
    `check` names a function of the task's checks file, which is called with the answer's function.
    """

    name: str
    why: str = ""
    args: list[Any] | None = None
    returns: Any = msgspec.UNSET
    raises: str | None = None
    stdin: str | None = None
    stdout: str | None = None
    constraint: str | None = None
    min: int | None = None
    max: int | None = None
    n: int | None = None
    max_repeats: int | None = None
    start: int | None = None
    stop: int | None = None
    check: str | None = None


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wrong answer that the task must catch: `file` in the folder, and the cases it must `fail`."""

    file: str
    fails: list[str]


class Variants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A jinja2 template of the prompt, and for each of its variables the words to choose from.

    `image` is the picture that every wording made from it shows, or None.
    """

    template: str
    choices: dict[str, list[str]]
    image: str | None = None


class Task(msgspec.Struct, frozen=True):
    """A task, read whole. `digest` is the SHA-256 of all its files; `path` is where it was read from."""

    name: str
    title: str
    summary: str
    kind: Kind
    judge: Judge
    language: Language
    entry: str | None
    max_new_tokens: int
    prompts: tuple[Prompt, ...]
    cases: tuple[Case, ...]
    gold: str
    mutants: tuple[Mutant, ...]
    variants: Variants | None
    digest: str
    path: Path
    builtin: bool
    cpu_s: float = 1.0
    """Seconds of CPU time that one call of the program may take (one case in program mode)."""
    checks: str | None = None
    """File of the checks in the folder, where the judge is checks."""
    depth: int | None = None
    """Tokens of filler before each prompt; the name then ends with them (`csv@4096`, `tasks.depth`)."""
