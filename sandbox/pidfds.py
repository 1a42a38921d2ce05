"""Processes by descriptor: a number may be given to another process meanwhile, a pidfd names one for good."""

import contextlib
import ctypes
import os
import selectors
import signal

PR_SET_CHILD_SUBREAPER = 36


def kill(fd: int) -> None:
    """SIGKILL; nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)


def has_ended(fd: int, timeout_s: float = 0.0) -> bool:
    """True if it has ended, or ends within the time: a pidfd turns readable then."""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(max(0.0, timeout_s)))


def reap(fd: int) -> None:
    """Take the exit status of an ended process, if it is a child of ours and nobody did yet."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, fd, os.WEXITED)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that a sandbox's first process can be reaped here when bwrap ends
    before it: in a container the machine's own first process often reaps nothing.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
