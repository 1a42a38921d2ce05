"""The types of a task: the question in several wordings, and named cases with what they expect.

All are frozen. `tasks.folder` reads them from a folder and checks them; nothing downstream changes them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import msgspec

Kind = Literal["code", "prose", "exact"]
"""What sort of text an answer is; acceptance and speed are reported by kind."""

Judge = Literal["function", "program", "constraints", "checks", "tool_call"]
"""How an answer is judged: a function called case by case, a program fed on stdin, checked constraints, a function
handed to checks that somebody wrote (a data set's own), which run in a sandbox of their own, or the call of a tool,
whose arguments are held against JSON schemas."""

RUNS_PROGRAMS: frozenset[Judge] = frozenset({"function", "program", "checks"})
"""Judges that run a program of the answer."""

Language = Literal["python", "lua", "javascript"]


Speaker = Literal["user", "tool"]
"""Who says a later turn of a conversation: the user, or a tool that gives back what it was called for."""


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One wording of a task's question. `id` is unique in its task; `text` is the user's turn.

    `image` is a picture's path inside the task folder (`tasks.images`), or None. A conversation is a prompt a turn, one
    after the other: `p1`, `p1.2`, `p1.3`; each but the first is asked `after` the one before it, and between them
    stands the answer to that.
    """

    id: str
    text: str
    image: str | None = None
    turn: int = 1
    after: str | None = None
    role: Speaker = "user"


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One named thing that a right answer gets right.

    Function judge: `args` and one of `returns` (compared exactly, by type and value) or `raises` (the name of
    the exception's type). Program judge: `stdin` and `stdout` (bytes as UTF-8, compared exactly). Constraints
    judge: `constraint` names one of `tasks.constraints_spec.CONSTRAINTS` and the rest are its numbers. Checks judge:
    `check` names a function of the task's checks file, which is called with the answer's function. Tool call judge:
    `tool` names the tool to call; `schema` is a JSON schema for its arguments, the tool's own where it isn't given.
    `turn`: the turn of a conversation that the case is about, from 1; the last one where it isn't given.
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
    tool: str | None = None
    schema: dict[str, Any] | None = None
    turn: int | None = None


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wrong answer that the task must catch: `file` in the folder, and the cases it must `fail`, which are all of one
    turn where the task is a conversation."""

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
    tools: tuple[dict[str, Any], ...] = ()
    """What the model may call, in OpenAI's form: {"type": "function", "function": {"name", "description",
    "parameters"}}."""
    golds: tuple[str, ...] = ()
    """A gold answer's file a turn ("" where the turn has no case), or the last turn's alone; `gold` is the last."""
    depth: int | None = None
    """Tokens of filler before each prompt; the name then ends with them (`csv@4096`, `tasks.depth`)."""

    @property
    def turns(self) -> int:
        """Turns of each prompt; 1 where the task is no conversation."""
        return max((prompt.turn for prompt in self.prompts), default=1)

    def gold_of(self, turn: int) -> str:
        """The file of a turn's gold answer; "" for a turn without cases."""
        if len(self.golds) == self.turns:
            return self.golds[turn - 1]
        return self.gold if turn == self.turns else ""

    def of_turn(self, turn: int) -> Task:
        """The task with the cases of one turn only, and a digest of its own: grades of turns mustn't be mixed up."""
        if self.turns == 1:
            return self
        cases = tuple(case for case in self.cases if (case.turn or self.turns) == turn)
        digest = hashlib.sha256(f"{self.digest}/{turn}".encode()).hexdigest()
        return msgspec.structs.replace(self, cases=cases, digest=digest)


def turn_of(prompt: str) -> int:
    """Which turn of a conversation a prompt's id stands for: 2 for `p1.2`, 1 for `p1` (first turns have no dot)."""
    _, _, turn = prompt.rpartition(".") if "." in prompt else ("", "", "1")
    return int(turn) if turn.isascii() and turn.isdigit() and len(turn) <= 4 else 1


def conversation_of(prompt: str) -> str:
    """The first turn's id, which is the whole conversation's: `p1` for `p1.2`."""
    return prompt.partition(".")[0]
