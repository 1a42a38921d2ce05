"""A command of the user's that turns a server into one arm or the other (`--switch-cmd`), run as they would run it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from typing import IO

from evals.engine.child import clean
from evals.types import Failure

SWITCH_S = 600.0
KEPT = 2000


def switch(command: str, arm: str, timeout_s: float = SWITCH_S) -> Failure | None:
    """Run the command in the user's shell with GATE_ARM set to `plain` or `spec`; what went wrong, or None.

    It may leave a server running behind it; it has to end itself.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            (os.environ.get("SHELL", "/bin/sh"), "-c", command),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "GATE_ARM": arm},
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return _failed(
                f"did not end within {timeout_s:.0f} s; a server belongs into the background", said
            )
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return None if code == 0 else _failed(f"exited with code {code}", said)


def _failed(what: str, said: IO[bytes]) -> Failure:
    said.seek(0, os.SEEK_END)
    said.seek(max(0, said.tell() - KEPT))
    tail = clean(said.read(KEPT).decode("utf-8", "replace"))
    words = " ".join(tail.split())[-400:]
    return Failure(
        kind="unreachable", message=f"the switch command {what}{': ' if words else ''}{words}", stage="build"
    )
