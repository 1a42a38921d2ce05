"""Runs a data set's own checks on an answer's program: two programs of strangers, each in a sandbox of its own.

The checks are somebody's code, so they never run on the host; the program is a model's, so it never shares a process
with what grades it. The checks call a stand-in; each call is relayed to the function-mode process of the program
(`sandbox.function_mode`), and what comes back is a value of exact built-in types or an exception's name. Arguments are
passed by value: a check that looks for a change in place can't see it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

import msgspec

from sandbox.contract import Limits, Outcome, Program, Sandbox, SandboxUnavailable, SessionEnded, Status
from sandbox.drivers.python_driver import Malformed, Unsupported, decode, encode
from sandbox.function_mode import MAX_RESTARTS, Caller, CallOutcome, CallResult
from tasks.types import Language

MAX_CALLS: Final = 20_000
"""Calls in one check; more are taken for a loop without end."""
_MAX_LENGTH: Final = 10
"""Digits of a message's length."""

Result = Literal[
    "passed", "failed", "raised", "broken", "crash", "timeout", "killed", "output_limit", "infra"
]


class CheckResult(msgspec.Struct, frozen=True):
    """One check. failed: an assertion of it didn't hold. raised: an exception of the program came through it. broken:
    the check itself raised something else. The others say how the program ended in a call. limit: the field of
    `Limits` that was exceeded, or "".
    """

    outcome: Result
    detail: str = ""
    limit: str = ""


def run_checks(
    sandbox: Sandbox,
    program: bytes,
    entry: str,
    checks: bytes,
    functions: Sequence[str],
    limits: Limits,
    language: Language = "python",
) -> list[CheckResult]:
    """The result of each of `functions` of the checks on `entry` of the program, in order.

    limits hold for one call of the program, as in function mode; all calls of one check together, and the check
    itself, have wall_s. Whatever ended is started again for the next check, 16 times at most. Never raises for what
    either of the two programs does; what can't be started is infra.
    """
    results: list[CheckResult] = []
    last = CheckResult("infra", "not run")
    for _ in range(MAX_RESTARTS + 1):
        if len(results) == len(functions):
            break
        try:
            with (
                _Checks(sandbox, checks, limits) as asked,
                Caller(sandbox, program, entry, limits, language) as caller,
            ):
                if caller.loaded.outcome is not CallOutcome.RETURNED:
                    last = _ended(caller.loaded)
                    break
                while caller.alive and asked.alive and len(results) < len(functions):
                    last = asked.run(functions[len(results)], caller)
                    results.append(last)
        except SandboxUnavailable as error:
            last = CheckResult("infra", str(error))
            break
    return results + [last] * (len(functions) - len(results))


class _Checks:
    """The process of the checks. Raises SandboxUnavailable where it can't be started."""

    def __init__(self, sandbox: Sandbox, checks: bytes, limits: Limits):
        files = {**_drivers(), "checks.py": checks}
        self._limits = limits
        self._session = sandbox.open(Program(files=files, entry="checks_driver.py"), limits)
        self._buffer = b""
        self.alive = True

    def __enter__(self) -> _Checks:
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.close()

    def run(self, function: str, caller: Caller) -> CheckResult:
        """One check, its calls relayed to `caller`. Checks that die are broken: with a right answer they lived."""
        try:
            return self._relay(function, caller)
        except SessionEnded as error:
            self.alive = False
            outcome = error.outcome
            limit = outcome.limit if outcome.status is Status.TIMEOUT else ""
            kind: Result = "infra" if outcome.status is Status.INFRA else "broken"
            return CheckResult(kind, f"the checks ended: {_why(outcome)}", limit)
        except Malformed as error:
            self.alive = False
            return CheckResult("broken", f"the checks sent what is no message: {error}")

    def _relay(self, function: str, caller: Caller) -> CheckResult:
        spent, calls = 0.0, 0
        gone: CheckResult | None = None
        unsendable = ""
        self._send(["run", function])
        while True:
            match self._receive():
                case ["done", "passed" | "failed" | "raised" | "broken" as outcome, str(detail)]:
                    if gone is not None:
                        return gone
                    if unsendable and outcome == "raised":
                        return CheckResult("failed", unsendable)
                    return CheckResult(outcome, detail)
                case ["call", list(arguments)]:
                    calls += 1
                    began = time.monotonic()
                    result = caller.call(arguments)
                    spent += time.monotonic() - began
                    if spent > self._limits.wall_s or calls > MAX_CALLS:
                        limit = "wall_s" if spent > self._limits.wall_s else ""
                        gone = gone or CheckResult("timeout", "over wall_s in all calls of a check", limit)
                    elif result.outcome not in (CallOutcome.RETURNED, CallOutcome.RAISED):
                        gone = gone or _ended(result)
                    if result.outcome is CallOutcome.RAISED and result.detail:
                        unsendable = result.detail
                    self._send(["gone"] if gone else _told(result))
                    if calls > 2 * MAX_CALLS:
                        raise Malformed("calls without end")
                case _:
                    raise Malformed("neither a call nor an outcome")

    def _send(self, message: list[Any]) -> None:
        body = encode(message)
        self._session.restart_clock()
        self._session.send(b"%d\n%s" % (len(body), body))

    def _receive(self) -> object:
        while b"\n" not in self._buffer[:_MAX_LENGTH]:
            if len(self._buffer) >= _MAX_LENGTH:
                raise Malformed("no length")
            self._buffer += self._session.receive()
        digits, _, rest = self._buffer.partition(b"\n")
        if not digits.isdigit() or int(digits) > self._limits.output_bytes:
            raise Malformed("a length that doesn't fit")
        pieces, length = [rest], len(rest)
        while length < int(digits):
            pieces.append(self._session.receive())
            length += len(pieces[-1])
        whole = b"".join(pieces)
        self._buffer = whole[int(digits) :]
        return decode(whole[: int(digits)])


def _told(result: CallResult) -> list[Any]:
    if result.outcome is CallOutcome.RAISED:
        return ["raised", result.error]
    try:
        encode(["returned", result.value])
    except Unsupported:  # a value at the very limit of nesting
        return ["raised", "RecursionError"]
    return ["returned", result.value]


def _ended(result: CallResult) -> CheckResult:
    """What the end of the program says about the check that was open."""
    outcomes: dict[CallOutcome, Result] = {
        CallOutcome.RAISED: "raised",
        CallOutcome.CRASH: "crash",
        CallOutcome.TIMEOUT: "timeout",
        CallOutcome.KILLED: "killed",
        CallOutcome.OUTPUT_LIMIT: "output_limit",
    }
    limit = result.limit if result.outcome is CallOutcome.TIMEOUT else ""
    return CheckResult(outcomes.get(result.outcome, "infra"), result.detail, limit)


def _why(outcome: Outcome) -> str:
    last = outcome.stderr[-300:].decode("utf-8", "replace").strip().rpartition("\n")[2]
    how = outcome.limit or outcome.detail or last
    return (
        f"{outcome.status.value} {how}".strip()
        if outcome.status is not Status.EXITED
        else f"exited {last}".strip()
    )


@cache
def _drivers() -> dict[str, bytes]:
    codec = resources.files("sandbox.drivers").joinpath("python_driver.py")
    own = resources.files("evals").joinpath("checks_driver.py")
    return {"python_driver.py": codec.read_bytes(), "checks_driver.py": own.read_bytes()}
