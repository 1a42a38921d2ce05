"""How a program ended, from what a backend saw: one order of precedence for all of them."""

import signal

from sandbox.contract import Outcome, Status

SHELL_SIGNAL = 128  # a status above it stands for a signal, by the shell's convention


def tell(
    *,
    code: int | None,
    stopped: tuple[Status, str] | None,
    out_of_memory: bool,
    closed: bool,
    trouble: str,
    stdout: bytes,
    stderr: bytes,
    wall_s: float,
    cpu_s: float,
) -> Outcome:
    """The outcome.

    code: the exit status, None if there was none. stopped: the limit that the supervisor stopped it for, as status and
    field of `Limits`. closed: it was killed because its session was closed. trouble: what went wrong with the sandbox
    itself, or "": it comes before all else, since then nothing is known of the program.
    """
    status, limit, detail = _verdict(code, stopped, out_of_memory, closed, trouble)
    number = None
    if status is Status.SIGNALLED:
        number = int(signal.SIGKILL) if code is None else code - SHELL_SIGNAL
    return Outcome(
        status=status,
        exit_code=code if status is Status.EXITED else None,
        signal=number,
        limit=limit,
        stdout=stdout,
        stderr=stderr,
        wall_s=wall_s,
        cpu_s=cpu_s,
        detail=detail,
    )


def _verdict(
    code: int | None, stopped: tuple[Status, str] | None, out_of_memory: bool, closed: bool, trouble: str
) -> tuple[Status, str, str]:
    if trouble:
        return Status.INFRA, "", trouble
    if out_of_memory:
        return Status.KILLED, "memory_bytes", ""
    if stopped is not None:
        return *stopped, ""
    if closed:
        return Status.SIGNALLED, "", "closed while it was running"
    if code is None:
        return Status.INFRA, "", "it ended without an exit status"
    if code == SHELL_SIGNAL + signal.SIGXCPU:  # RLIMIT_CPU, when a look came late
        return Status.TIMEOUT, "cpu_s", ""
    if code > SHELL_SIGNAL:
        return Status.SIGNALLED, "", ""
    return Status.EXITED, "", ""
