"""Running many programs at once on the cores that decoding leaves over, without a busy machine turning a pass into a
timeout.

CPU time is measured for each program, so that a program which waits for its turn doesn't spend its allowance. The wall
clock is the one limit that others can use up: a program that exceeds it alone is run once more with nothing else of the
pool beside it, and that second outcome is the one that counts.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from sandbox.contract import Limits, Outcome, Program, Sandbox, Status
from sandbox.function_mode import CallOutcome, CallResult, run_function
from sandbox.relay import Checker, CheckResult

T = TypeVar("T")


class _Turns:
    """Many may run together, or one alone; one who waits to be alone is let in before any newcomer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._waiting_alone = 0
        self._alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting_alone += 1
            self._changed.wait_for(lambda: not self._alone and not self._running)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


class Pool:
    """Runs programs of one sandbox, `workers` at a time (default: every core this process may use).

    Use as a context manager; leaving it waits for what was submitted.
    """

    def __init__(self, sandbox: Sandbox, workers: int | None = None):
        self.workers = workers if workers is not None else len(os.sched_getaffinity(0))
        if self.workers < 1:
            raise ValueError(f"Pool.workers: expected at least 1, found {self.workers}")
        self._sandbox = sandbox
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="sandbox")
        self._turns = _Turns()
        self._own = threading.local()
        self._lock = threading.Lock()
        self._checkers: list[Checker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what was submitted."""
        self._shut(cancel=False)

    def cancel(self) -> None:
        """Drop what hasn't begun, and wait for the rest."""
        self._shut(cancel=True)

    def _shut(self, *, cancel: bool) -> None:
        self._threads.shutdown(wait=True, cancel_futures=cancel)
        for checker in self._checkers:
            checker.close()

    def run(self, program: Program, limits: Limits) -> Future[Outcome]:
        """`Sandbox.run`, in turn."""
        return self._submit(lambda: self._sandbox.run(program, limits), _out_of_wall_time)

    def run_function(
        self,
        source: bytes,
        entry: str,
        calls: Sequence[Sequence[object]],
        limits: Limits,
        language: str = "python",
    ) -> Future[list[CallResult]]:
        """`function_mode.run_function`, in turn."""
        return self._submit(
            lambda: run_function(self._sandbox, source, entry, calls, limits, language),
            lambda results: any(map(_call_out_of_wall_time, results)),
        )

    def run_checks(
        self,
        source: bytes,
        entry: str,
        checks: bytes,
        limits: Limits,
        language: str = "python",
        *,
        check: str = "check",
    ) -> Future[CheckResult]:
        """`relay.Checker.run`, in turn; each worker keeps one sandbox for the checks it runs."""

        def job() -> CheckResult:
            checker: Checker | None = getattr(self._own, "checker", None)
            if checker is None:
                checker = self._own.checker = Checker(self._sandbox, limits)
                with self._lock:
                    self._checkers.append(checker)
            return checker.run(source, entry, checks, limits, check=check, language=language)

        return self._submit(job, lambda result: result.limit == "wall_s")

    def _submit(self, job: Callable[[], T], starved: Callable[[T], bool]) -> Future[T]:
        def turn() -> T:
            with self._turns.together():
                result = job()
            if starved(result):
                with self._turns.alone():
                    result = job()
            return result

        return self._threads.submit(turn)


def _out_of_wall_time(outcome: Outcome) -> bool:
    return outcome.status is Status.TIMEOUT and outcome.limit == "wall_s"


def _call_out_of_wall_time(result: CallResult) -> bool:
    return result.outcome is CallOutcome.TIMEOUT and result.limit == "wall_s"
