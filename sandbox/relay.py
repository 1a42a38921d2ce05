"""Grading by somebody else's checks: the program in one sandbox, the checks in another, and only plain values between.

HumanEval's and MBPP's rows bring their own checks: code that calls a candidate and asserts. Run in one process with the
program, the program could exit before them, patch them, or answer with an object that equals everything; run on the
host, they would be strangers' code on the host. Here each call of the candidate is relayed to the function mode of the
program's sandbox, and the checks see what comes back as built-in values.
"""

import re
from enum import StrEnum
from functools import cache
from importlib import resources

import msgspec

from sandbox.contract import Limits, Program, Sandbox, SandboxUnavailable, Session, SessionEnded
from sandbox.drivers.python_driver import Malformed, decode, encode
from sandbox.function_mode import Caller, CallOutcome, CallResult, from_outcome

MAX_CALLS = 100_000
_FRAME = re.compile(rb"([cvx]) ([0-9]{1,9})\n")
_HEADER_BYTES = 32


class CheckOutcome(StrEnum):
    """How a program did by its checks."""

    PASSED = "passed"
    FAILED = "failed"
    CRASH = "crash"
    TIMEOUT = "timeout"
    KILLED = "killed"
    OUTPUT_LIMIT = "output_limit"
    INFRA = "infra"


class CheckResult(msgspec.Struct, frozen=True):
    """calls: how many times the checks called the program. limit: the field of `Limits` that was exceeded, or ""."""

    outcome: CheckOutcome
    detail: str = ""
    calls: int = 0
    limit: str = ""


@cache
def _drivers() -> dict[str, bytes]:
    folder = resources.files("sandbox.drivers")
    return {name: folder.joinpath(name).read_bytes() for name in ("check_driver.py", "python_driver.py")}


class Checker:
    """A sandbox in which checks run, one after the other, each in a process forked for it. Use as a context manager,
    from one thread. limits: of the checks' sandbox; its time and output bound what happens between two calls.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits):
        self._sandbox, self._limits = sandbox, limits
        self._session: Session | None = None

    def __enter__(self) -> "Checker":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox of the checks."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def run(
        self,
        source: bytes,
        entry: str,
        checks: bytes,
        limits: Limits,
        *,
        check: str = "check",
        language: str = "python",
    ) -> CheckResult:
        """Run `check(candidate)` of `checks` (Python) against the function `entry` of `source`; in the checks' own
        namespace the name `entry` stands for the candidate too.

        limits: of the program; time and output for one call each. Passed only if the checks returned, after at least
        one call. An answer that never came (crash, timeout, killed, output_limit) ends the checks at once. Checks that
        end without a verdict before their first call are infra: they say nothing of the program. Raises ValueError for
        a name that is no identifier; never for what either side does.
        """
        if not check.isidentifier() or not entry.isidentifier():
            raise ValueError(f"checks: expected identifiers, found check {check!r}, entry {entry!r}")
        try:
            session = self._ready()
            # the checks make ready while the program is loaded
            session.send(b"%s %s %d\n%s" % (check.encode(), entry.encode(), len(checks), checks))
            with Caller(self._sandbox, source, entry, limits, language) as candidate:
                result, sound = _Relay(session, candidate, self._limits).run()
        except SandboxUnavailable as error:
            result, sound = CheckResult(CheckOutcome.INFRA, detail=str(error)), False
        except SessionEnded as ended:
            detail = f"the checks' sandbox ended: {from_outcome(ended.outcome).detail}"
            result, sound = CheckResult(CheckOutcome.INFRA, detail=detail), False
        if not sound:
            self.close()
        return result

    def _ready(self) -> Session:
        if self._session is None:
            program = Program(files=_drivers(), entry="check_driver.py")
            self._session = self._sandbox.open(program, self._limits)
        self._session.restart_clock()
        return self._session


def run_checks(
    sandbox: Sandbox, source: bytes, entry: str, checks: bytes, limits: Limits, *, language: str = "python"
) -> CheckResult:
    """`Checker.run` once, with the same limits for both sides."""
    with Checker(sandbox, limits) as checker:
        return checker.run(source, entry, checks, limits, language=language)


class _Relay:
    """One run of checks against one program."""

    def __init__(self, checker: Session, candidate: Caller, limits: Limits):
        self._checker, self._candidate, self._limits = checker, candidate, limits
        self._buffer = b""
        self._calls = 0

    def run(self) -> tuple[CheckResult, bool]:
        """The result, and whether the checks' sandbox may be used again."""
        if self._candidate.loaded.outcome is CallOutcome.RAISED:
            return CheckResult(CheckOutcome.FAILED, detail=self._candidate.loaded.detail), False
        if self._candidate.loaded.outcome is not CallOutcome.RETURNED:
            return self._unanswered(self._candidate.loaded), False
        try:
            self._checker.restart_clock()
            while True:
                kind, body = self._frame()
                if kind == b"v" and not self._buffer:
                    return self._verdict(body.decode(errors="replace")[:100]), True
                if kind != b"c":
                    raise Malformed("they exited")
                unanswered = self._relay(body)
                if unanswered is not None:
                    return self._unanswered(unanswered), False
        except SessionEnded as ended:
            return self._no_verdict(from_outcome(ended.outcome).detail), False
        except Malformed as error:
            return self._no_verdict(str(error)), False

    def _unanswered(self, result: CallResult) -> CheckResult:
        return CheckResult(CheckOutcome(result.outcome), result.detail, self._calls, result.limit)

    def _no_verdict(self, reason: str) -> CheckResult:
        outcome = CheckOutcome.FAILED if self._calls else CheckOutcome.INFRA
        return CheckResult(outcome, f"the checks ended without a verdict: {reason}", self._calls)

    def _verdict(self, name: str) -> CheckResult:
        if not self._calls:
            detail = f"the checks ended before they called the program: {name or 'no call'}"
            return CheckResult(CheckOutcome.INFRA, detail)
        if name:
            return CheckResult(CheckOutcome.FAILED, f"the checks ended with {name}", self._calls)
        return CheckResult(CheckOutcome.PASSED, "", self._calls)

    def _relay(self, body: bytes) -> CallResult | None:
        """Ask the program; None when the checks have its answer, otherwise what came in its place."""
        question = decode(body)
        if not isinstance(question, tuple) or len(question) != 2 or self._calls >= MAX_CALLS:
            raise Malformed("a call that isn't the driver's")
        arguments, keywords = question
        self._calls += 1
        result = self._candidate.call(arguments, keywords)
        if result.outcome is CallOutcome.RETURNED:
            kind, answer = b"r", encode(result.value)
        elif result.outcome is CallOutcome.RAISED:
            kind, answer = b"e", result.error.encode()
        else:
            return result
        self._checker.restart_clock()
        self._checker.send(b"%s %d\n%s" % (kind, len(answer), answer))
        return None

    def _frame(self) -> tuple[bytes, bytes]:
        while b"\n" not in self._buffer[:_HEADER_BYTES]:
            if len(self._buffer) >= _HEADER_BYTES:
                raise Malformed("no header")
            self._buffer += self._checker.receive()
        header = _FRAME.match(self._buffer)
        if header is None or int(header[2]) > self._limits.output_bytes:
            raise Malformed("no header")
        end = header.end() + int(header[2])
        while len(self._buffer) < end:
            self._buffer += self._checker.receive()
        body, self._buffer = self._buffer[header.end() : end], self._buffer[end:]
        return header[1], body
