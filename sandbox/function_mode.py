"""Function mode: call a function of an untrusted program, and learn what it returned without believing its word.

The grader stays outside. Inside runs a driver that knows no answer (`sandbox.drivers`). A reply counts only if it
carries the random id of the question that is open, is no larger than the limit, and decodes to plain built-in
values; the comparison is made outside, on those. End of output, a wrong id, a malformed, oversized or late reply:
the call failed.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import resources

import msgspec

from sandbox.contract import Limits, Outcome, Program, Sandbox, SandboxUnavailable, SessionEnded, Status
from sandbox.drivers.python_driver import Malformed, decode, encode

MAX_RESTARTS = 16
DRIVERS = {
    "python": ("python_driver.py", "program.py"),
    "lua": ("lua_driver.lua", "program.lua"),
    "javascript": ("javascript_driver.js", "program.js"),
}
_HEADER = re.compile(rb"([0-9]{1,20}) ([reu]) ([0-9]{1,9})\n")
_HEADER_BYTES = 64


class _TooLarge(Exception):
    """A reply announced with more bytes than the limit."""


class CallOutcome(StrEnum):
    """How one call ended."""

    RETURNED = "returned"
    RAISED = "raised"
    CRASH = "crash"
    TIMEOUT = "timeout"
    KILLED = "killed"
    OUTPUT_LIMIT = "output_limit"
    INFRA = "infra"


class CallResult(msgspec.Struct, frozen=True):
    """One call. value: with returned, of exact built-in types (None, bool, int, float, str, bytes, list, tuple, dict,
    set, frozenset). error: with raised, the name of the exception's type. detail: a sentence, or "".
    limit: the field of `Limits` that was exceeded, or "".
    """

    outcome: CallOutcome
    value: object = None
    error: str = ""
    detail: str = ""
    limit: str = ""


@cache
def _driver(language: str) -> bytes:
    return resources.files("sandbox.drivers").joinpath(DRIVERS[language][0]).read_bytes()


class Caller:
    """One process of one program, asked one call after the other. Use as a context manager.

    limits: wall_s, cpu_s and output_bytes are for one call each (loading the program counts as one), the rest for
    the process. `loaded` is the result of loading; `alive` is False once no further call can be answered.
    Raises SandboxUnavailable when the sandbox can't be started.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        source: bytes,
        entry: str,
        limits: Limits,
        language: str = "python",
        environment: Mapping[str, str] | None = None,
    ):
        driver = DRIVERS[language][0]
        files = {driver: _driver(language), DRIVERS[language][1]: source}
        program = Program(
            files=files, entry=driver, language=language, argv=(entry,), environment=dict(environment or {})
        )
        self._limits = limits
        self._buffer = b""
        self.alive = True
        self._session = sandbox.open(program, limits)
        self.loaded = self._ask(encode(([], {})))
        if self.loaded.outcome is CallOutcome.RAISED:
            self.loaded = msgspec.structs.replace(
                self.loaded, detail=f"{self.loaded.error} while loading the program"
            )
            self.alive = False

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.close()

    def call(self, arguments: Sequence[object], keywords: Mapping[str, object] | None = None) -> CallResult:
        """Call the entry with arguments of exact built-in types; anything else raises TypeError. Keywords: Python only.

        On a program that is no longer alive, returns what ended it.
        """
        question = encode((list(arguments), dict(keywords or {})))
        return self._ask(question) if self.alive else self.loaded

    def _ask(self, body: bytes) -> CallResult:
        identity = b"%d" % secrets.randbits(63)
        try:
            self._session.restart_clock()
            self._session.send(b"%s %d\n%s" % (identity, len(body), body))
            kind, answer = self._reply(identity)
        except SessionEnded as ended:
            self.alive = False
            return from_outcome(ended.outcome)
        except _TooLarge:
            self.alive = False
            self._session.close()
            return CallResult(CallOutcome.OUTPUT_LIMIT, detail="over output_bytes", limit="output_bytes")
        except Malformed as error:
            return self._broken(str(error))
        if kind == b"e":
            return CallResult(CallOutcome.RAISED, error=answer.decode(errors="replace")[:100])
        if kind == b"u":
            name = answer.decode(errors="replace")[:100]
            detail = f"returned a value of type {name}, which isn't a plain built-in one"
            return CallResult(CallOutcome.RAISED, error="TypeError", detail=detail)
        try:
            return CallResult(CallOutcome.RETURNED, value=decode(answer))
        except Malformed as error:
            return self._broken(str(error))

    def _broken(self, reason: str) -> CallResult:
        self.alive = False
        self._session.close()
        return CallResult(CallOutcome.CRASH, detail=f"a reply that isn't the driver's: {reason}")

    def _reply(self, identity: bytes) -> tuple[bytes, bytes]:
        """Kind and body of the one reply to the open question. Raises SessionEnded, Malformed, _TooLarge."""
        while b"\n" not in self._buffer[:_HEADER_BYTES]:
            if len(self._buffer) >= _HEADER_BYTES:
                raise Malformed("no header")
            self._buffer += self._session.receive()
        header = _HEADER.match(self._buffer)
        if header is None:
            raise Malformed("no header")
        if not secrets.compare_digest(header[1], identity):
            raise Malformed("an id that wasn't asked")
        size = int(header[3])
        if size > self._limits.output_bytes:
            raise _TooLarge
        pieces, length = [self._buffer[header.end() :]], len(self._buffer) - header.end()
        while length < size:
            pieces.append(self._session.receive())
            length += len(pieces[-1])
        if length > size:
            raise Malformed("more than one reply")
        self._buffer = b""
        return header[2], b"".join(pieces)


def from_outcome(outcome: Outcome) -> CallResult:
    """What the end of a process says about the call that was open."""
    told = {
        Status.TIMEOUT: CallOutcome.TIMEOUT,
        Status.KILLED: CallOutcome.KILLED,
        Status.OUTPUT_LIMIT: CallOutcome.OUTPUT_LIMIT,
        Status.INFRA: CallOutcome.INFRA,
    }
    if outcome.status in told:
        detail = outcome.detail or f"over {outcome.limit}"
        return CallResult(told[outcome.status], detail=detail, limit=outcome.limit)
    how = (
        f"signal {outcome.signal}" if outcome.status is Status.SIGNALLED else f"exit code {outcome.exit_code}"
    )
    return CallResult(CallOutcome.CRASH, detail=f"the process ended without an answer: {how}")


def run_function(
    sandbox: Sandbox,
    source: bytes,
    entry: str,
    calls: Sequence[Sequence[object]],
    limits: Limits,
    language: str = "python",
    max_restarts: int = MAX_RESTARTS,
    environment: Mapping[str, str] | None = None,
) -> list[CallResult]:
    """Call `entry` of a program with each of `calls`, in one process as long as it lives.

    A call that ends the process fails alone: the ones after it get a fresh process, `max_restarts` times at most;
    after that the rest are given the last failure. environment: as in `Program`. A program that can't be loaded fails
    every call the same way. Never raises for what a program does; a sandbox that can't be started makes calls infra.
    """
    results: list[CallResult] = []
    last = CallResult(CallOutcome.INFRA, detail="not run")
    for _ in range(max_restarts + 1):
        if len(results) == len(calls):
            break
        try:
            with Caller(sandbox, source, entry, limits, language, environment) as caller:
                if caller.loaded.outcome is not CallOutcome.RETURNED:
                    last = caller.loaded
                    break
                while caller.alive and len(results) < len(calls):
                    last = caller.call(calls[len(results)])
                    results.append(last)
        except SandboxUnavailable as error:
            last = CallResult(CallOutcome.INFRA, detail=str(error))
            break
    return results + [last] * (len(calls) - len(results))
