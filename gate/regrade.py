"""Grade a run's answers again, without decoding: after a task's harness was mended, or on another machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from evals.grade import Grader
from evals.recording import RunWriter
from evals.records import RunReader
from evals.types import Grade
from gate.conclude import read_tasks
from gate.grading import trusted_sandbox
from sandbox.contract import SandboxUnavailable

IN_FLIGHT = 64


def regrade(run: Path, sandbox_name: str | None = None) -> int:
    """Run every answer's program again and put the new grades in the place of the old; returns how many.

    Raises RecordError, TaskError, RunDirError for the run; SandboxUnavailable where no sandbox can be trusted (the old
    grades are kept then).
    """
    records = RunReader(run)
    tasks = tuple(read_tasks(records).values())
    sandbox, report = trusted_sandbox(sandbox_name, tasks)
    if not report.trusted:
        raise SandboxUnavailable(report.remedy)
    with Grader(tasks, sandbox, workers=os.cpu_count() or 1) as grader:
        return RunWriter.regrade(run, _graded(grader, records), report)


def _graded(grader: Grader, records: RunReader) -> Iterator[Grade]:
    """Every answer's grade in the order of the answers, a bounded number of them in flight."""
    pending: deque[Future[Grade]] = deque()
    for answer in records.answers():
        if answer.probe is None:
            pending.append(grader.submit(answer))
        if len(pending) >= IN_FLIGHT:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
