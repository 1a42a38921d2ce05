"""The parent's handle on one engine: start it, ask it, and say what became of it when it doesn't answer.

A crash (with its signal), a hang and an engine's own error come back as `Failure`, never as an exception.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from evals.engine.protocol import MAX_LINE, Ask, Beat, Build, Done, FromWorker, Problem, Ready
from evals.types import Failure

WORKER: tuple[str, ...] = (sys.executable, "-P", "-m", "evals.engine.worker")
"""The command of an engine's process; two file descriptors (to read, to write) are appended."""

_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LAST_LINES = 12
_REAP_S = 10.0

Stage = Literal["build", "decode"]


class OutOfTime(Exception):
    """The caller's deadline passed while an engine worked; the engine was killed and nothing is said of it."""


class Patience(msgspec.Struct, frozen=True):
    """How long an engine may be silent, in seconds, before it counts as hung.

    build_s: until it is built. first_s: until the first sign of life of its first answer. After that `factor` times
    the longest silence seen so far, at least `least_s`: a slow machine isn't a hung one.
    """

    build_s: float = 1800.0
    first_s: float = 600.0
    least_s: float = 60.0
    factor: float = 30.0


class EngineProcess:
    """One arm's engine in a process of its own; start it from the thread that will outlive it (it dies with it)."""

    def __init__(
        self, build: Build, *, command: Sequence[str] = WORKER, patience: Patience | None = None
    ) -> None:
        self._build = build
        self._command = command
        self._patience = patience or Patience()
        self._process: subprocess.Popen[bytes] | None = None
        self._read_fd = self._write_fd = -1
        self._buffer = bytearray()
        self._decoder = msgspec.json.Decoder(FromWorker)
        self._tail: deque[str] = deque(maxlen=_LAST_LINES)
        self._tail_reader: threading.Thread | None = None
        self._longest_silence: float | None = None
        self._started = 0.0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and hand it its arm; returns at once, so that several can load side by side."""
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
        self._longest_silence = None
        self._started = time.monotonic()
        self._tail_reader = threading.Thread(target=self._keep_tail, args=(self._process,), daemon=True)
        self._tail_reader.start()
        self._send(self._build)

    def ready(self, deadline: float | None = None) -> Failure | None:
        """Wait until the arm is built; what went wrong, or None. OutOfTime when deadline (time.monotonic()) passes."""
        limit = self._started + self._patience.build_s - time.monotonic()
        message = self._receive("build", max(0.0, limit), deadline)
        if isinstance(message, Ready):
            return None
        return message if isinstance(message, Failure) else self._broken(message, "build")

    def ask(
        self,
        text: str,
        max_new_tokens: int,
        *,
        deadline: float | None = None,
        on_beat: Callable[[int], None] | None = None,
    ) -> Done | Failure:
        """Decode one rendered prompt. on_beat: told the number of tokens delivered so far, at most twice a second.

        Raises OutOfTime when deadline (time.monotonic()) passes; the engine is killed then.
        """
        self._send(Ask(text=text, max_new_tokens=max_new_tokens))
        while True:
            asked = time.monotonic()
            message = self._receive("decode", self._allowed_silence(), deadline)
            if isinstance(message, Beat | Done):
                self._longest_silence = max(self._longest_silence or 0.0, time.monotonic() - asked)
            if isinstance(message, Done | Failure):
                return message
            if not isinstance(message, Beat):
                return self._broken(message, "decode")
            if on_beat is not None:
                on_beat(message.tokens)

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

    def _allowed_silence(self) -> float:
        if self._longest_silence is None:
            return self._patience.first_s
        return max(self._patience.least_s, self._patience.factor * self._longest_silence)

    def _send(self, message: Build | Ask) -> None:
        line = msgspec.json.encode(message) + b"\n"
        try:
            while line:
                line = line[os.write(self._write_fd, line) :]
        except BrokenPipeError:
            pass  # it has died: the next receive says how

    def _receive(self, stage: Stage, limit_s: float, deadline: float | None) -> FromWorker | Failure:
        """The next message, or why there is none."""
        end = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_fd, selectors.EVENT_READ)
            searched = 0
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
                    return self._garbled(stage, "a message longer than 64 MiB")
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._garbled(stage, str(error))

    def _broken(self, message: FromWorker, stage: Stage) -> Failure:
        if isinstance(message, Problem):
            return Failure(kind=message.kind, message=essence(message.message), stage=stage)
        return self._garbled(stage, f"an unexpected {type(message).__name__}")

    def _garbled(self, stage: Stage, what: str) -> Failure:
        self.kill()
        return Failure(kind="error", message=f"the engine's process sent {what}", stage=stage)

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
                self._tail.append(_clean(line.decode("utf-8", "replace"))[:400])


def child_environment() -> dict[str, str]:
    """The child finds this very package however the parent was started, and fetches nothing from the network."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
        "OPENVINO_TELEMETRY": "0",
    }


def essence(text: str) -> str:
    """An engine's message without the source lines that it passed through."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("Exception from ")]
    return _clean(" ".join(told or lines)) or "the engine gave no reason"


def _clean(text: str) -> str:
    return _CONTROL.sub("", text).strip()[:4000]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
