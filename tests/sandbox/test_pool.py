"""The threat: a busy machine turns a pass into a timeout, or the pool mixes results up, or waits for itself."""

from __future__ import annotations

import threading
import time

import pytest

from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Outcome, Program, Status
from sandbox.function_mode import CallOutcome
from sandbox.pool import Pool


def python(source: str) -> Program:
    return Program(files={"main.py": source.encode()}, entry="main.py")


class Starved:
    """A sandbox whose wall clock runs out whenever another program runs beside: the fault that has to be made."""

    name = "starved"

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.calls = 0
        self._lock = threading.Lock()

    def run(self, program: Program, limits: Limits) -> Outcome:
        with self._lock:
            self.running += 1
            self.calls += 1
            self.most = max(self.most, self.running)
            beside = self.running > 1
            pause = 0.05 + 0.03 * self.calls  # so that they don't end together
        time.sleep(pause)
        with self._lock:
            beside = beside or self.running > 1
            self.running -= 1
        if program.stdin == b"idle" or (beside and program.stdin == b"slow"):
            return Outcome(status=Status.TIMEOUT, limit="wall_s")
        if program.stdin == b"busy":
            return Outcome(status=Status.TIMEOUT, limit="cpu_s")
        return Outcome(status=Status.EXITED, exit_code=0)


def program(stdin: bytes) -> Program:
    return Program(files={"a": b""}, entry="a", stdin=stdin)


def test_a_wall_timeout_is_run_again_alone_before_it_counts() -> None:
    sandbox = Starved()
    with Pool(sandbox, 4) as pool:  # type: ignore[arg-type]
        futures = [pool.run(program(b"slow"), Limits()) for _ in range(6)]
        outcomes = [future.result(30) for future in futures]
    assert {outcome.status for outcome in outcomes} == {Status.EXITED}
    assert sandbox.most > 1


def test_one_that_times_out_alone_too_is_a_timeout() -> None:
    sandbox = Starved()
    with Pool(sandbox, 2) as pool:  # type: ignore[arg-type]
        outcome = pool.run(program(b"idle"), Limits()).result(30)
    assert (outcome.status, sandbox.calls) == (Status.TIMEOUT, 2)


def test_a_cpu_timeout_counts_at_once() -> None:
    sandbox = Starved()
    with Pool(sandbox, 2) as pool:  # type: ignore[arg-type]
        outcome = pool.run(program(b"busy"), Limits()).result(30)
    assert (outcome.limit, sandbox.calls) == ("cpu_s", 1)


def test_programs_run_side_by_side_and_answer_for_themselves(bubblewrap: Bubblewrap) -> None:
    with Pool(bubblewrap, 4) as pool:
        futures = [pool.run(python(f"print({number})"), Limits()) for number in range(12)]
        calls = [
            pool.run_function(b"def f(x): return x + 1", "f", [(number,)], Limits()) for number in range(12)
        ]
        assert [future.result().stdout for future in futures] == [b"%d\n" % number for number in range(12)]
        assert [future.result()[0].value for future in calls] == list(range(1, 13))


def test_a_function_that_sleeps_is_timed_out_after_a_second_try(bubblewrap: Bubblewrap) -> None:
    source = b"import time\ndef f(x):\n    if x: time.sleep(100)\n    return x"
    with Pool(bubblewrap, 2) as pool:
        results = pool.run_function(source, "f", [(0,), (1,), (0,)], Limits(wall_s=1)).result()
    assert [result.outcome for result in results] == [
        CallOutcome.RETURNED,
        CallOutcome.TIMEOUT,
        CallOutcome.RETURNED,
    ]


def test_a_loaded_machine_makes_no_timeout(bubblewrap: Bubblewrap) -> None:
    """Twice as many programs as cores, each using half of its CPU allowance."""
    source = "import time\nwhile time.process_time() < 0.5: pass\nprint('done')"
    with Pool(bubblewrap, 4) as pool:
        futures = [pool.run(python(source), Limits(wall_s=30, cpu_s=1.5)) for _ in range(8)]
        assert [future.result().stdout for future in futures] == [b"done\n"] * 8


def test_a_pool_without_workers_is_refused(bubblewrap: Bubblewrap) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Pool(bubblewrap, 0)


def test_cancel_drops_what_has_not_begun(bubblewrap: Bubblewrap) -> None:
    pool = Pool(bubblewrap, 1)
    futures = [pool.run(python("import time; time.sleep(0.3)"), Limits()) for _ in range(8)]
    futures[0].result()
    pool.cancel()
    assert any(future.cancelled() for future in futures)
