"""Grades answers: one by one, or as they arrive beside the decode.

An answer that an engine failed to give has every case no_program with the reason "no answer: …": the rules read
`Answer.failure` for what that means, and it can never count as passed. Equal programs of a task are run once.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Protocol

from evals.constraints import check_constraint
from evals.extract import extract
from evals.judge import infra, judge
from evals.thinking import final_part
from evals.toolcalls import Faulty, find_call, grade_call
from evals.types import INFRA, Answer, CaseGrade, Grade, Outcome
from evals.values import cut
from sandbox.contract import Sandbox
from sandbox.pool import Pool
from tasks.types import RUNS_PROGRAMS, Task, turn_of

_CACHED: Final = 4_096
"""Programs whose grades are kept."""


class Known(Protocol):
    """Grades of programs that were run before, by this sandbox's like. Called from the grader's threads."""

    def get(self, task: Task, program_sha256: str) -> tuple[CaseGrade, ...] | None: ...
    def keep(self, task: Task, program_sha256: str, cases: tuple[CaseGrade, ...]) -> None: ...


def grade_answer(task: Task, answer: Answer, sandbox: Sandbox | None) -> Grade:
    """The answer judged by its task. sandbox: one that passed its self-test; None makes the cases of programs infra.

    Raises ValueError for an answer to another task.
    """
    task = task.of_turn(turn_of(answer.prompt))
    found = _read(task, answer)
    if isinstance(found, Grade):
        return found
    if sandbox is None:
        return _grade(answer, judge(task, found, None), found)
    with Pool(sandbox, 1) as pool:
        return _grade(answer, judge(task, found, pool), found)


def was_truncated(answer: Answer) -> bool:
    """Whether the budget ended the answer, also where the engine doesn't say why it stopped."""
    full = answer.finish == "unknown" and len(answer.ids) >= answer.max_new_tokens
    return answer.finish == "length" or full


class Grader:
    """Grades answers in threads of its own while others are being decoded. Use as a context manager.

    An exception inside the `with` (Ctrl-C is one) cancels what hasn't begun. workers: programs at a time.
    known: where a program's grade is looked up before it is run, and kept after.
    """

    def __init__(
        self, tasks: Iterable[Task], sandbox: Sandbox | None, workers: int = 1, known: Known | None = None
    ):
        self._known = known
        self._tasks = {task.name: task for task in tasks}
        self._pool = Pool(sandbox, max(1, workers)) if sandbox is not None else None
        self._threads = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="grade")
        self._lock = threading.Lock()
        self._programs: OrderedDict[tuple[str, str], Future[tuple[CaseGrade, ...]]] = OrderedDict()

    def submit(self, answer: Answer) -> Future[Grade]:
        """Begin to grade; returns at once. Raises KeyError for a task that wasn't given, RuntimeError once closed."""
        return self._threads.submit(self._grade, self._tasks[answer.task], answer)

    def close(self, *, cancel: bool = False) -> None:
        """Wait for what was begun; with `cancel`, drop what wasn't. May be called again."""
        self._threads.shutdown(wait=not cancel, cancel_futures=cancel)
        if self._pool is not None:
            if cancel:
                self._pool.cancel()
            self._pool.close()
        self._threads.shutdown(wait=True)

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(cancel=kind is not None)

    def _grade(self, task: Task, answer: Answer) -> Grade:
        task = task.of_turn(turn_of(answer.prompt))
        try:
            found = _read(task, answer)
            return found if isinstance(found, Grade) else _grade(answer, self._judge_once(task, found), found)
        except CancelledError:
            raise
        except Exception as error:  # a fault of ours or the machine's must not pass for the model's
            cases = infra(task, f"grading failed: {type(error).__name__}: {error}")
            return _grade(answer, cases, None, reason="grading failed")

    def _judge_once(self, task: Task, program: bytes) -> tuple[CaseGrade, ...]:
        key = (task.digest, _sha256(program))
        with self._lock:
            known = self._programs.get(key)
            if known is None:
                mine = self._programs[key] = Future()
                while len(self._programs) > _CACHED:
                    self._programs.popitem(last=False)
        if known is not None:
            return known.result()
        try:
            cases = self._judge(task, program, key[1])
        except BaseException as error:
            mine.set_exception(error)
            self._forget(key)
            raise
        mine.set_result(cases)
        if any(case.outcome == "infra" for case in cases):
            self._forget(key)
        return cases

    def _judge(self, task: Task, program: bytes, digest: str) -> tuple[CaseGrade, ...]:
        cases = self._known.get(task, digest) if self._known is not None else None
        if cases is None:
            cases = judge(task, program, self._pool)
            if self._known is not None:
                self._known.keep(task, digest, cases)
        return cases

    def _forget(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._programs.pop(key, None)


def _read(task: Task, answer: Answer) -> bytes | Grade:
    """The program to run, or the grade where there is none to run."""
    if answer.task != task.name:
        raise ValueError(f"expected an answer to the task {task.name}, found one to {answer.task}")
    if not task.cases:
        return _grade(answer, (), None, "no case is about this turn")
    if answer.failure is not None:
        failure = answer.failure
        outcome: Outcome = "infra" if failure.kind in INFRA else "no_program"
        return _without(task, answer, outcome, f"no answer: {failure.kind}: {failure.message}"[:400])
    truncated = was_truncated(answer)
    if task.judge == "tool_call":
        call = find_call(answer.text, task.tools, truncated)
        reason = str(call) if isinstance(call, Faulty) else ""
        text = answer.text.encode("utf-8", "replace")
        return _grade(answer, tuple(grade_call(case, task, call) for case in task.cases), text, cut(reason))
    if task.judge in RUNS_PROGRAMS:
        found = extract(answer.text, language=task.language, entry=task.entry, truncated=truncated)
        if found.program is None:
            return _without(task, answer, "truncated" if found.truncated else "no_program", found.reason)
        return found.program.encode("utf-8", "replace")
    try:
        final = final_part(answer.text)
    except ValueError as error:
        return _without(task, answer, "no_program", f"the text wasn't read: {error}")
    if final.open and not final.text.strip():
        reason = "truncated in thinking" if truncated else "the thinking never closed"
        return _without(task, answer, "truncated" if truncated else "no_program", reason)
    cases = tuple(check_constraint(case, final.text, truncated) for case in task.cases)
    return _grade(answer, cases, final.text.encode("utf-8", "replace"))


def _without(task: Task, answer: Answer, outcome: Outcome, reason: str) -> Grade:
    cases = tuple(CaseGrade(case.name, outcome, reason) for case in task.cases)
    return _grade(answer, cases, None, reason)


def _grade(answer: Answer, cases: tuple[CaseGrade, ...], judged: bytes | None, reason: str = "") -> Grade:
    return Grade(
        arm=answer.arm,
        task=answer.task,
        prompt=answer.prompt,
        repeat=answer.repeat,
        cases=cases,
        program_sha256=None if judged is None else _sha256(judged),
        reason=reason,
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
