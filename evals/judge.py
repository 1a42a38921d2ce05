"""Runs a program against a task's cases in a sandbox, and says what became of each.

The program never grades itself: what it returned or printed is compared here. Where the sandbox gives fewer results
than there are cases, or can't be started, the cases are infra: never a pass, and never a fail of the model
(opendidac#684). A timeout by the wall clock alone may be a busy machine's fault (evalplus#5): the pool runs it again
with no other program beside it before it counts.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Final

from evals.types import CaseGrade
from evals.types import Outcome as CaseOutcome
from evals.values import cut, equal, show
from sandbox.contract import Limits, Outcome, Program, Status
from sandbox.function_mode import CallOutcome, CallResult
from sandbox.pool import Pool
from sandbox.relay import CheckOutcome, CheckResult
from tasks.folder import read_file
from tasks.types import Case, Judge, Task

WALL_S: Final = 10.0
FILES: Final = {"python": "program.py", "lua": "program.lua", "javascript": "program.js"}


def judge(task: Task, program: bytes, pool: Pool | None) -> tuple[CaseGrade, ...]:
    """One CaseGrade per case of the task, in order. Without a pool (no trusted sandbox) every case is infra.

    Raises TaskError where the task's checks can't be read any more.
    """
    if pool is None:
        return infra(task, "no sandbox that can be trusted; `gate doctor` says what to install")
    limits = Limits(cpu_s=task.cpu_s, wall_s=max(WALL_S, 2 * task.cpu_s))
    return _JUDGES[task.judge](task, program, pool, limits)


def infra(task: Task, why: str) -> tuple[CaseGrade, ...]:
    """Every case undecided by trouble of the machine."""
    return tuple(CaseGrade(case.name, "infra", cut(why, 400)) for case in task.cases)


def _call(task: Task, program: bytes, pool: Pool, limits: Limits) -> tuple[CaseGrade, ...]:
    assert task.entry is not None
    calls = [case.args or [] for case in task.cases]
    results = pool.run_function(program, task.entry, calls, limits, task.language).result()
    if len(results) != len(task.cases):
        return infra(task, f"the sandbox gave {len(results)} results for {len(task.cases)} cases")
    return tuple(_grade_call(task, case, result) for case, result in zip(task.cases, results, strict=True))


def _grade_call(task: Task, case: Case, result: CallResult) -> CaseGrade:
    wants_error = case.raises is not None
    expected = f"raises {case.raises}" if wants_error else show(case.returns)
    outcome: CaseOutcome
    if result.outcome is CallOutcome.RETURNED:
        right = not wants_error and equal(case.returns, result.value, task.language)
        return CaseGrade(case.name, "pass" if right else "fail", show(result.value), expected)
    if result.outcome is CallOutcome.RAISED:
        # with a detail: raised while loading, or returned what can't be sent; the call itself raised nothing
        if result.detail:
            outcome = "crash" if result.detail.endswith("while loading the program") else "fail"
            return CaseGrade(case.name, outcome, cut(result.detail), expected)
        if case.raises is not None and _is_a(result.error, case.raises):
            outcome = "pass"
        else:
            answers = {other.raises for other in task.cases if other.raises is not None}
            outcome = "fail" if any(_is_a(result.error, name) for name in answers) else "crash"
        return CaseGrade(case.name, outcome, cut(f"raises {result.error}"), expected)
    ended: dict[CallOutcome, CaseOutcome] = {
        CallOutcome.CRASH: "crash",
        CallOutcome.TIMEOUT: "timeout",
        CallOutcome.KILLED: "killed",
        CallOutcome.OUTPUT_LIMIT: "output_limit",
    }
    return CaseGrade(case.name, ended.get(result.outcome, "infra"), cut(result.detail, 400), expected)


def _is_a(name: str, wanted: str) -> bool:
    """Whether an exception of type `name` would be caught as `wanted`: by name, or as built-in types of Python."""
    one, other = getattr(builtins, name, None), getattr(builtins, wanted, None)
    return name == wanted or (isinstance(one, type) and isinstance(other, type) and issubclass(one, other))


def _check(task: Task, program: bytes, pool: Pool, limits: Limits) -> tuple[CaseGrade, ...]:
    assert task.entry is not None and task.checks is not None
    checks = read_file(task, task.checks).encode()
    running = [
        pool.run_checks(program, task.entry, checks, limits, task.language, check=case.check or "")
        for case in task.cases
    ]
    return tuple(_grade_check(case, run.result()) for case, run in zip(task.cases, running, strict=True))


def _grade_check(case: Case, result: CheckResult) -> CaseGrade:
    outcomes: dict[CheckOutcome, CaseOutcome] = {
        CheckOutcome.PASSED: "pass",
        CheckOutcome.FAILED: "fail",
        CheckOutcome.CRASH: "crash",
        CheckOutcome.TIMEOUT: "timeout",
        CheckOutcome.KILLED: "killed",
        CheckOutcome.OUTPUT_LIMIT: "output_limit",
    }
    return CaseGrade(case.name, outcomes.get(result.outcome, "infra"), cut(result.detail, 400), case.why)


def _feed(task: Task, program: bytes, pool: Pool, limits: Limits) -> tuple[CaseGrade, ...]:
    file = FILES[task.language]
    running = []
    for case in task.cases:
        stdin = (case.stdin or "").encode()
        made = Program(files={file: program}, entry=file, language=task.language, stdin=stdin)
        running.append(pool.run(made, limits))
    return tuple(_grade_output(case, run.result()) for case, run in zip(task.cases, running, strict=True))


def _grade_output(case: Case, outcome: Outcome) -> CaseGrade:
    wanted = (case.stdout or "").encode()
    expected = cut(repr(case.stdout))
    if outcome.status is Status.EXITED and outcome.exit_code == 0:
        shown = cut(repr(outcome.stdout[:1000].decode("utf-8", "backslashreplace")))
        return CaseGrade(case.name, "pass" if outcome.stdout == wanted else "fail", shown, expected)
    last = cut(outcome.stderr[-2000:].decode("utf-8", "backslashreplace").strip().rpartition("\n")[2], 120)
    if outcome.status is Status.EXITED:
        return CaseGrade(case.name, "crash", f"exit code {outcome.exit_code}: {last}", expected)
    if outcome.status is Status.SIGNALLED:
        return CaseGrade(case.name, "crash", f"signal {outcome.signal}", expected)
    ended: dict[Status, CaseOutcome] = {
        Status.TIMEOUT: "timeout",
        Status.KILLED: "killed",
        Status.OUTPUT_LIMIT: "output_limit",
    }
    why = outcome.detail or f"over {outcome.limit}"
    return CaseGrade(case.name, ended.get(outcome.status, "infra"), cut(why, 400), expected)


_JUDGES: Final[dict[Judge, Callable[[Task, bytes, Pool, Limits], tuple[CaseGrade, ...]]]] = {
    "function": _call,
    "program": _feed,
    "checks": _check,
}
