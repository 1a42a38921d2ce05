"""The contract of every sandbox: what goes in, what comes out, and what each method promises and raises.

A sandbox runs programs that a model wrote. They are hostile until shown otherwise, and they never
grade themselves: whatever comes out is bytes, and is compared outside. A backend is a class that has
the methods of `Sandbox`; the conformance suite in tests/sandbox runs against every one of them.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Protocol, runtime_checkable

import msgspec

LANGUAGES = ("python", "lua", "javascript")
MAX_FILES = 64
MAX_FILE_BYTES = 8 << 20
MAX_ALL_BYTES = 32 << 20
MAX_STDIN_BYTES = 16 << 20
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",  # noqa: S108
    "TMPDIR": "/tmp",  # noqa: S108
    "TZ": "<+0545>-5:45",
}
"""What a program finds in its environment. The zone is far from UTC and spelled out (no table of zones is needed), so
that a program whose answer depends on the zone of its process is seen to.
"""


class SandboxUnavailable(RuntimeError):
    """No sandbox that could be trusted; the message says what was expected, found, and what to do."""


class InvalidProgram(ValueError):
    """A program or limit that no backend would accept (a path outside /code, a negative limit, …)."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one program may use. Times in seconds, sizes in bytes; every limit holds for the whole program,
    all of its processes together, except `file_bytes` (one file) and `open_files` (one process).

    In a session `wall_s` and `cpu_s` bound what happens between two calls of `restart_clock`.
    `cores` caps the rate at which CPU time is used where the backend can (a cgroup).
    """

    wall_s: float = 10.0
    cpu_s: float = 5.0
    memory_bytes: int = 256 << 20
    processes: int = 64
    file_bytes: int = 32 << 20
    tmp_bytes: int = 64 << 20
    output_bytes: int = 1 << 20
    open_files: int = 64
    cores: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0 < value < 1 << 48:
                raise InvalidProgram(f"Limits.{name}: expected a number above 0, found {value!r}")


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program and its input.

    files: relative path → content, all placed read-only under /code. entry: the one of them that is run.
    argv: arguments after it. stdin: all of standard input in program mode (a session writes its own).
    environment: added to `ENVIRONMENT`; nothing of the host's is passed on.
    """

    files: dict[str, bytes]
    entry: str
    language: str = "python"
    argv: tuple[str, ...] = ()
    stdin: bytes = b""
    environment: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise InvalidProgram(f"Program.language: expected one of {LANGUAGES}, found {self.language!r}")
        if self.entry not in self.files:
            raise InvalidProgram(f"Program.entry: expected one of {sorted(self.files)}, found {self.entry!r}")
        if len(self.files) > MAX_FILES:
            raise InvalidProgram(
                f"Program.files: expected at most {MAX_FILES} files, found {len(self.files)}"
            )
        if len(self.stdin) > MAX_STDIN_BYTES:
            raise InvalidProgram(f"Program.stdin: expected at most {MAX_STDIN_BYTES} bytes")
        for name, content in self.files.items():
            parts = PurePosixPath(name).parts
            if (
                not parts
                or name.startswith("/")
                or ".." in parts
                or "\0" in name
                or str(PurePosixPath(name)) != name
            ):
                raise InvalidProgram(f"Program.files: expected a plain relative path, found {name!r}")
            if len(content) > MAX_FILE_BYTES:
                raise InvalidProgram(f"Program.files[{name!r}]: expected at most {MAX_FILE_BYTES} bytes")
        if sum(map(len, self.files.values())) > MAX_ALL_BYTES:
            raise InvalidProgram(f"Program.files: expected at most {MAX_ALL_BYTES} bytes together")
        for text in (*self.argv, *self.environment, *self.environment.values()):
            if "\0" in text:
                raise InvalidProgram("Program.argv, Program.environment: a NUL character can't be passed on")
        if any(not key or "=" in key for key in self.environment):
            raise InvalidProgram("Program.environment: expected names without '='")


class Status(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    KILLED = "killed"
    OUTPUT_LIMIT = "output_limit"
    INFRA = "infra"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a program after it ended; nothing of it is running any more.

    exit_code: with status exited. signal: with status signalled (a program that exits with 128 + N can't be
    told from one killed by signal N; it counts as signalled). limit: the field of `Limits` that ended it:
    wall_s or cpu_s with timeout, memory_bytes with killed, output_bytes with output_limit, otherwise "".
    stdout, stderr: bytes as written, cut at output_bytes together. wall_s, cpu_s: seconds, measured outside;
    cpu_s covers all of its processes (with Docker it is a lower bound). detail: with infra, what to do; otherwise a
    remark or "".
    """

    status: Status
    exit_code: int | None = None
    signal: int | None = None
    limit: str = ""
    stdout: bytes = b""
    stderr: bytes = b""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    detail: str = ""


class SessionEnded(RuntimeError):
    """The program of a session is gone or was stopped; `outcome` says how."""

    def __init__(self, outcome: Outcome):
        super().__init__(f"the program ended: {outcome.status} {outcome.limit or outcome.detail}".rstrip())
        self.outcome = outcome


class Probe(msgspec.Struct, frozen=True):
    """One attack of the self-test: what had to happen, what did, and what to do when that differs."""

    name: str
    passed: bool
    expected: str
    found: str
    remedy: str = ""


class Session(Protocol):
    """A running program that is talked to. To be used and closed by the thread that opened it.

    The clock starts at `Sandbox.open` and again at each `restart_clock`; limits are enforced while `send` or
    `receive` is waiting.
    """

    def send(self, data: bytes) -> None:
        """Write all of it to standard input. Raises SessionEnded."""

    def receive(self) -> bytes:
        """The next bytes of standard output, at least one. Raises SessionEnded (end of output is one)."""

    def restart_clock(self) -> None:
        """Begin the time allowance of `wall_s`, `cpu_s` and `output_bytes` again. Never raises."""

    def close(self) -> Outcome:
        """Kill whatever is left and say how it ended; may be called again. Never raises for what a program did."""

    def __enter__(self) -> "Session": ...

    def __exit__(self, *exc: object) -> None:
        """Closes."""


@runtime_checkable
class Sandbox(Protocol):
    """A place where programs run. Safe to use from several threads."""

    name: str

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run in a fresh sandbox, feed stdin, wait for the end.

        Always returns an outcome: a missing interpreter or a sandbox that can't be set up is status infra.
        When it returns no process, mount, file or cgroup of the program is left.
        """

    def open(self, program: Program, limits: Limits) -> Session:
        """Start in a fresh sandbox with standard input and output open. Raises SandboxUnavailable when it can't
        be started (a missing interpreter included).
        """

    def self_test(self) -> tuple[Probe, ...]:
        """Run the attacks. A backend is to be trusted only if every probe passed. Never raises."""

    def describe(self) -> Mapping[str, str]:
        """What holds, for the record of a run: backend, versions, which memory and process control is in force.

        gaps: what the contract promises and this backend keeps in part only, here; "none known" where nothing is.
        """

    def close(self) -> None:
        """Release what the backend itself holds; sessions still open end. May be called again."""
