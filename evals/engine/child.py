"""A child process that speaks lines on pipes of its own: started, watched, and ended, whatever becomes of it.

How it ended (signal, exit code, silence, its last words) comes back as `Failure`. What the lines mean is the caller's.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal

from evals.engine.childside import PARENT
from evals.engine.protocol import MAX_LINE
from evals.types import Failure

Stage = Literal["build", "decode"]

_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LAST_LINES = 12
_REAP_S = 10.0


class OutOfTime(Exception):
    """The caller's deadline passed while a child worked; it was killed and nothing is said of it."""


class Child:
    """One child process. Start it from the thread that will outlive it: it dies with that thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._read_fd = self._write_fd = -1
        self._buffer = bytearray()
        self._tail: deque[str] = deque(maxlen=_LAST_LINES)
        self._tail_reader: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the command with two file descriptors (to read, to write) appended; a predecessor is ended first."""
        self.kill()
        child_read, self._write_fd = os.pipe()
        self._read_fd, child_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*self._command, str(child_read), str(child_write)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(child_read, child_write),
                start_new_session=True,
                env=child_environment(),
            )
        finally:
            os.close(child_read)
            os.close(child_write)
        self._buffer.clear()
        self._tail.clear()
        self._tail_reader = threading.Thread(target=self._keep_tail, args=(self._process,), daemon=True)
        self._tail_reader.start()

    def send(self, line: bytes) -> None:
        """Send one line (its end is added). A child that has died is noticed by the next `receive`."""
        data = memoryview(line + b"\n")
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except BrokenPipeError:
            pass

    def receive(self, stage: Stage, limit_s: float, deadline: float | None = None) -> bytes | Failure:
        """The next line, or why there is none within limit_s; the child is dead then.

        Raises OutOfTime, and kills the child, when deadline (time.monotonic()) passes.
        """
        end = time.monotonic() + limit_s
        searched = 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ)
            while (at := self._buffer.find(b"\n", searched)) < 0:
                searched = len(self._buffer)
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    self.kill()
                    raise OutOfTime
                if now >= end:
                    return self._hung(stage, limit_s)
                until = end if deadline is None else min(end, deadline)
                if not selector.select(until - now):
                    continue
                chunk = os.read(self._read_fd, 1 << 16)
                if not chunk:
                    return self._died(stage)
                self._buffer += chunk
                if len(self._buffer) > MAX_LINE:
                    return self.garbled(stage, "a message longer than 64 MiB")
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        return line

    def garbled(self, stage: Stage, what: str) -> Failure:
        """End a child that said what it shouldn't."""
        self.kill()
        return Failure(kind="error", message=f"the engine's process sent {what}", stage=stage)

    def kill(self) -> None:
        """End the process and all that it started. Safe to call twice, and on one that never started."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()
        if self._tail_reader is not None:
            self._tail_reader.join(_REAP_S)
        for fd in (self._read_fd, self._write_fd):
            if fd >= 0:
                os.close(fd)
        self._read_fd = self._write_fd = -1
        self._process = None

    def _hung(self, stage: Stage, limit_s: float) -> Failure:
        self.kill()
        doing = "building" if stage == "build" else "decoding"
        message = f"no sign of life for {limit_s:.0f} s while {doing}; it was ended{self._last_words()}"
        return Failure(kind="hang", message=message, stage=stage)

    def _died(self, stage: Stage) -> Failure:
        assert self._process is not None
        try:
            code = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            return self._hung(stage, _REAP_S)
        self.kill()
        if code < 0:
            how = f"ended by {_signal_name(-code)}"
            if -code == signal.SIGKILL:
                how += " (out of memory, most likely)"
        else:
            how = f"exited with code {code}"
        return Failure(
            kind="crash",
            message=f"the engine's process {how}{self._last_words()}",
            signal=-code if code < 0 else None,
            exit_code=code if code >= 0 else None,
            stage=stage,
        )

    def _last_words(self) -> str:
        lines = [line for line in self._tail if line]
        return f"; its last words: {' | '.join(lines)}"[:2000] if lines else ""

    def _keep_tail(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as pipe:
            while line := pipe.readline(4096):
                self._tail.append(clean(line.decode("utf-8", "replace"))[:400])


def child_environment() -> dict[str, str]:
    """The child finds this very package however the parent was started, and fetches nothing from the network."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        PARENT: str(os.getpid()),
        "HF_HUB_OFFLINE": "1",
        "OPENVINO_TELEMETRY": "0",
    }


def essence(text: str) -> str:
    """An engine's message without the source lines that it passed through."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("Exception from ")]
    return clean(" ".join(told or lines)) or "the engine gave no reason"


def clean(text: str) -> str:
    """Text of a native library, without control characters and bounded."""
    return _CONTROL.sub("", text).strip()[:4000]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
