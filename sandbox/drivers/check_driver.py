# ruff: noqa: PTH120
"""The driver of somebody's checks: `python -I check_driver.py` waits for sources of checks and runs each in a fork.

The checks know the answers and are trusted to grade, but they are code from elsewhere: they run in a sandbox of their
own, away from the host and from the program. A job is `CHECK ENTRY LENGTH\\n` and the source; the function CHECK of it
is given a candidate that asks outside, and ENTRY is bound to the same. Each call of it is a frame `c LENGTH\\n` with
the arguments as python_driver.py takes them; what comes back is `KIND LENGTH\\n` and a body, as it gives them. The end
is `v LENGTH\\n` with "" for a pass or the name of the exception, or `x 0\\n` where the fork ended without one.
"""

import builtins
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from sandbox.drivers.python_driver import decode, encode, run_source
else:
    sys.path.insert(0, os.path.dirname(__file__))
    from python_driver import decode, encode, run_source

    sys.path.pop(0)


GAVE_VERDICT = 113  # not 0: checks may exit by themselves


class CandidateError(Exception):
    """The program raised an exception of a type that isn't built in."""


def _again(name: str) -> Exception:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind("raised by the program")
    return CandidateError(name)


def _write(fd: int, kind: bytes, body: bytes) -> None:
    frame = memoryview(b"%s %d\n%s" % (kind, len(body), body))
    while frame:
        frame = frame[os.write(fd, frame) :]


def _run(source: bytes, check: str, entry: str, answers: "BinaryIO", asked: int) -> None:
    def candidate(*arguments: object, **keywords: object) -> object:
        _write(asked, b"c", encode((list(arguments), keywords)))
        kind, length = answers.readline().split()
        body = answers.read(int(length))
        if kind == b"e":
            raise _again(body.decode())
        return decode(body)

    verdict = ""
    try:
        module = run_source(source, "checks")
        setattr(module, entry, candidate)
        getattr(module, check)(candidate)
    except BaseException as error:
        verdict = type(error).__name__
    _write(asked, b"v", verdict.encode("utf-8", "replace"))


def main() -> None:
    """Answer jobs until the end of input."""
    answers = os.fdopen(os.dup(0), "rb", buffering=0)
    asked = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    while True:
        line = answers.readline()
        if not line:
            return
        check, entry, length = line.decode().split()
        source = b""
        while len(source) < int(length):
            source += answers.read(int(length) - len(source)) or b""
        child = os.fork()
        if child == 0:
            with os.fdopen(os.dup(answers.fileno()), "rb") as buffered:
                _run(source, check, entry, buffered, asked)
            os._exit(GAVE_VERDICT)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != GAVE_VERDICT:
            _write(asked, b"x", b"")


if __name__ == "__main__":
    main()
