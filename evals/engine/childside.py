"""The child's end of the pipes: it ignores Ctrl-C (the parent decides) and is gone when its parent is."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable

from evals.engine.protocol import MAX_LINE

PARENT = "GATE_PARENT"
"""Environment variable with the process number of whoever started the child."""

_PR_SET_PDEATHSIG = 1


def connect() -> tuple[Callable[[], bytes], Callable[[bytes], None]]:
    """Take the two file descriptors from the command line; return how to receive a line and how to send one.

    A thread waits on the parent's pipe, so that the child leaves in mid-decode too; the kernel does it where native
    code holds on to everything.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    read_fd, write_fd = int(sys.argv[1]), int(sys.argv[2])
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(read_fd, lines), daemon=True).start()

    def send(line: bytes) -> None:
        data = memoryview(line + b"\n")
        while data:
            data = data[os.write(write_fd, data) :]

    return lines.get, send


def die_with_parent() -> None:
    """Have the kernel end this process when the parent's thread that started it is gone (Linux).

    A parent that was killed while this process was starting is gone before it could be asked for.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get(PARENT, str(os.getppid())) != str(os.getppid()):
        os._exit(1)


def _listen(read_fd: int, lines: queue.SimpleQueue[bytes]) -> None:
    with os.fdopen(read_fd, "rb") as pipe:
        while (line := pipe.readline(MAX_LINE)).endswith(b"\n"):
            lines.put(line)
    os._exit(0)
