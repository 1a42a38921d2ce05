"""Grading beside decoding: each grade is recorded as soon as it is there; what an earlier part left is caught up."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from evals.grade import Grader
from evals.recording import RunWriter
from evals.records import RunReader
from evals.types import Answer, Grade, SandboxReport
from tasks.types import RUNS_PROGRAMS, Task

if TYPE_CHECKING:
    from sandbox.contract import Sandbox


MAX_PENDING = 256
"""Answers that may wait to be graded: decoding waits for grading from there on, so that memory stays bounded."""


class Grading:
    """Grades answers while others are being decoded, and records each grade as soon as it is there."""

    def __init__(self, grader: Grader, writer: RunWriter) -> None:
        self._grader, self._writer = grader, writer
        self._pending: deque[Future[Grade]] = deque()

    def take(self, answer: Answer) -> None:
        """Have an answer graded; record what is done by now. Raises WriteError."""
        if answer.probe is None:
            self._pending.append(self._grader.submit(answer))
        while self._pending and self._pending[0].done():
            self._writer.grade(self._pending.popleft().result())
        while len(self._pending) > MAX_PENDING:
            self._writer.grade(self._pending.popleft().result())

    def finish(self) -> None:
        """Wait for the rest and record it. Raises WriteError."""
        while self._pending:
            self._writer.grade(self._pending.popleft().result())


def ungraded(run: Path) -> Iterator[Answer]:
    """Answers that an earlier part of this run decoded and didn't come to grade."""
    reader = RunReader(run)
    graded = {(g.arm, g.task, g.prompt, g.repeat) for g in reader.grades()}
    return (a for a in reader.answers() if (a.arm, a.task, a.prompt, a.repeat) not in graded)


def trusted_sandbox(name: str | None, tasks: tuple[Task, ...]) -> tuple[Sandbox | None, SandboxReport]:
    """The sandbox that programs will run in, and what the run's record says of it."""
    from sandbox.choose import choose
    from sandbox.contract import SandboxUnavailable

    if not any(task.judge in RUNS_PROGRAMS for task in tasks):
        return None, SandboxReport(name="none", trusted=True, describes={"why": "no task runs programs"})
    try:
        sandbox = choose(name)
    except SandboxUnavailable as e:
        return None, SandboxReport(name=name or "none", trusted=False, remedy=str(e))
    return sandbox, SandboxReport(name=sandbox.name, trusted=True, describes=dict(sandbox.describe()))
