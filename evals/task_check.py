"""Checks that a task measures what it says: its gold passes, each mutant fails what it was made for.

A case that nothing can fail, or that the right answer fails, would stand in a verdict without meaning anything. The
folder's form is checked earlier, when it is loaded (`tasks.folder`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from evals.constraints import check_constraint
from evals.judge import judge
from evals.thinking import final_part
from evals.toolcalls import find_call, grade_call
from evals.types import CaseGrade
from sandbox.contract import Sandbox
from sandbox.pool import Pool
from tasks.errors import TaskError
from tasks.folder import read_file
from tasks.types import RUNS_PROGRAMS, Mutant, Prompt, Task, conversation_of
from tasks.variants import variants

_UNRUN: Final = "run `gate doctor`; where the task has checks of its own, see whether they can be loaded"

FEW_PROMPTS: Final = 4
"""Wordings below which a task says little: one wording in three was seen to change its answer."""
_VARIANTS_READ: Final = 20
_CHARACTERS_PER_TOKEN: Final = 8
"""More than tokens of code or prose hold on average, so that only a budget far too small is reported."""
_SPECIAL: Final = re.compile(r"<\|[A-Za-z_]+\|>|</?think>|<ov_genai_\w+>")


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a task. place: file, and the case or prompt in it. fix: what to do. A warning leaves the
    task usable, an error doesn't."""

    place: str
    message: str
    severity: Literal["error", "warning"]
    fix: str = ""


def check_task(task: Task, sandbox: Sandbox | None) -> tuple[Problem, ...]:
    """The problems of a loaded task, none if it is sound. Raises nothing for what the folder holds."""
    if sandbox is None:
        return (*_gold(task, None), *_mutants(task, None), *_prompts(task))
    with Pool(sandbox) as pool:
        return (*_gold(task, pool), *_mutants(task, pool), *_prompts(task))


def _gold(task: Task, pool: Pool | None) -> Iterator[Problem]:
    for turn in range(1, task.turns + 1):
        if task.gold_of(turn):
            yield from _gold_of_turn(task.of_turn(turn), task.gold_of(turn), pool)


def _gold_of_turn(task: Task, gold: str, pool: Pool | None) -> Iterator[Problem]:
    place = f"{task.name}/{gold}"
    try:
        text = read_file(task, gold)
        cases = _judge(task, text, pool)
    except TaskError as error:
        yield Problem(place, str(error), "error")
        return
    for case in cases:
        if case.outcome == "infra":
            yield Problem(
                place, f"case {case.case} couldn't be run: {case.observed}", "error", "run `gate doctor`"
            )
        elif case.outcome != "pass":
            got = f"{case.outcome}: {case.observed}"
            yield Problem(
                place,
                f"expected the gold answer to pass case {case.case} with {case.expected}, found {got}",
                "error",
                "correct the gold answer or the case",
            )
    if len(text) > _CHARACTERS_PER_TOKEN * task.max_new_tokens:
        yield Problem(
            f"{task.name}/task.toml",
            f"expected a budget for the gold answer's {len(text):,} characters, found {task.max_new_tokens} tokens",
            "warning",
            "raise max_new_tokens",
        )


def _mutants(task: Task, pool: Pool | None) -> Iterator[Problem]:
    fallible: set[str] = set()
    for mutant in task.mutants:
        place = f"{task.name}/{mutant.file}"
        try:
            cases = _judge(_of_mutant(task, mutant), read_file(task, mutant.file), pool)
        except TaskError as error:
            yield Problem(place, str(error), "error")
            continue
        outcomes = {case.case: case.outcome for case in cases}
        if "infra" in outcomes.values():
            case = next(case for case in cases if case.outcome == "infra")
            yield Problem(
                place, f"case {case.case} couldn't be run: {case.observed}", "error", "run `gate doctor`"
            )
            continue
        fallible.update(name for name, outcome in outcomes.items() if outcome != "pass")
        for name in mutant.fails:
            if outcomes[name] == "pass":
                yield Problem(
                    place,
                    f"expected this mutant to fail case {name}, found that it passes",
                    "error",
                    "sharpen the case, or correct the mutant or its fails",
                )
        if len(cases) > 1 and "pass" not in outcomes.values():
            yield Problem(
                place,
                "expected a mutant that is wrong in one way and passes other cases, found that it fails all of them",
                "warning",
                "make it differ from the gold answer in one thing",
            )
    if never := [case.name for case in task.cases if case.name not in fallible]:
        yield Problem(
            f"{task.name}/cases.jsonl",
            f"expected a mutant for every case, found none that fails {', '.join(never)}",
            "warning",
            "add a mutant that fails it, so that the case is known to tell right from wrong",
        )


def _of_mutant(task: Task, mutant: Mutant) -> Task:
    """The task with the cases of the turn that the mutant answers."""
    turn = next(case.turn for case in task.cases if case.name == mutant.fails[0])
    return task.of_turn(turn or task.turns)


def _prompts(task: Task) -> Iterator[Problem]:
    place = f"{task.name}/prompts.toml"
    wordings = sum(prompt.turn == 1 for prompt in task.prompts)
    if wordings < FEW_PROMPTS and task.judge != "checks":  # a data set asks each question once
        yield Problem(
            place,
            f"expected {FEW_PROMPTS} wordings or more, found {wordings}",
            "warning",
            "add wordings: whether an answer changes depends on the wording",
        )
    prompts: list[Prompt] = list(task.prompts)
    if task.variants is not None:
        for n in (_VARIANTS_READ, 1):
            try:
                prompts += variants(task, n, 0)
                break
            except TaskError as error:
                last = error
        else:
            yield Problem(place, str(last), "warning", "add words to [variants.choices]")
    for prompt in prompts:
        here = f"{place}, {prompt.id}"
        said = "\n".join(
            p.text
            for p in prompts
            if conversation_of(p.id) == conversation_of(prompt.id) and p.turn <= prompt.turn
        )
        judged = bool(task.of_turn(prompt.turn).cases)
        if (
            task.entry is not None
            and judged
            and not re.search(rf"(?<!\w){re.escape(task.entry)}(?!\w)", said)
        ):
            message = f"expected the prompt to name the function {task.entry}, found no mention of it"
            yield Problem(here, message, "error", "name it, or the answer can't be called")
        if special := _SPECIAL.search(prompt.text):
            message = f"expected plain text, found {special[0]}, which a chat template may read as its own"
            yield Problem(here, message, "warning", "reword the prompt")


def _judge(task: Task, text: str, pool: Pool | None) -> tuple[CaseGrade, ...]:
    if task.judge == "tool_call":
        call = find_call(text, task.tools)
        return tuple(grade_call(case, task, call) for case in task.cases)
    if task.judge in RUNS_PROGRAMS:
        return judge(task, text.encode(), pool)
    try:
        final = final_part(text).text
    except ValueError as error:
        raise TaskError(f"{task.path}: {error}") from None
    return tuple(check_constraint(case, final, False) for case in task.cases)
