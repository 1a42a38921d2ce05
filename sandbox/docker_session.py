"""One container as a session: its attached streams, its clocks, and its removal."""

import contextlib
import os
import selectors
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker.errors
import requests

from sandbox.contract import Limits, Outcome, SandboxUnavailable, SessionEnded, Status
from sandbox.ending import tell

FAULTS = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)
CHUNK = 1 << 16
HEADER = 8  # of a frame of an attached stream: its number, three zeros, its length
STDOUT, STDERR = 1, 2
LOOK_S = 0.1
CGROUP = Path("/sys/fs/cgroup")


class DockerSession:
    """A `Session` over a container that was created; `start` lets it run.

    CPU time is read from the container's control group while it runs, where the daemon is on this machine, so that
    `cpu_s` of a program which ends between two looks is a lower bound; elsewhere RLIMIT_CPU alone holds.
    """

    def __init__(
        self,
        api: Any,
        identity: str,
        folder: Path,
        limits: Limits,
        on_close: Callable[["DockerSession"], None],
    ):
        self._api, self._id, self._folder, self._limits, self._on_close = (
            api,
            identity,
            folder,
            limits,
            on_close,
        )
        self._socket: socket.socket | None = None
        self._attached = False
        self._selector = selectors.DefaultSelector()
        self._frames, self._inbox, self._errors, self._outbox = (bytearray() for _ in range(4))
        self._output_seen = 0
        self._cpu_file: Path | None = None
        self._cpu_used = self._cpu_before = 0.0
        self._stopped: tuple[Status, str] | None = None
        self._eof = False
        self._outcome: Outcome | None = None
        self._started = time.monotonic()
        self.restart_clock()

    def start(self) -> None:
        """Attach, then start. Raises SandboxUnavailable."""
        try:
            stream = self._api.attach_socket(
                self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
            self._stream = stream  # closing it closes the socket under it
            self._socket = getattr(stream, "_sock", stream)
            assert self._socket is not None
            self._api.start(self._id)
            self._attached = True
            self._cpu_file = _cpu_file(self._api.inspect_container(self._id)["State"]["Pid"])
        except FAULTS as error:
            self.close()
            raise SandboxUnavailable(f"docker: the container couldn't be started: {error}") from error
        self._socket.setblocking(False)
        self._selector.register(self._socket, selectors.EVENT_READ)
        self.restart_clock()

    def __enter__(self) -> "DockerSession":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def restart_clock(self) -> None:
        self._clock = time.monotonic()
        self._output_seen = 0
        self._cpu_before = self._cpu_s()
        self._next_look = self._clock + LOOK_S

    def send(self, data: bytes) -> None:
        self._outbox += data
        while self._outbox and not self._ended():
            self._pump()
        if self._ended():
            raise SessionEnded(self.close())

    def receive(self) -> bytes:
        while not self._inbox and not self._ended():
            self._pump()
        if not self._inbox or self._stopped is not None:
            raise SessionEnded(self.close())
        data, self._inbox = bytes(self._inbox), bytearray()
        return data

    def communicate(self, stdin: bytes) -> Outcome:
        """Program mode: feed all of stdin, close it, collect all output until the end."""
        self._outbox += stdin
        closed = False
        while not self._ended():
            if not self._outbox and not closed:
                closed = True
                with contextlib.suppress(OSError):
                    assert self._socket
                    self._socket.shutdown(socket.SHUT_WR)
            self._pump()
        return self.close()

    def _ended(self) -> bool:
        return self._stopped is not None or self._outcome is not None or self._eof

    def _pump(self) -> None:
        assert self._socket
        writing = selectors.EVENT_WRITE if self._outbox else 0
        self._selector.modify(self._socket, selectors.EVENT_READ | writing)
        wake = min(self._clock + self._limits.wall_s, self._next_look)
        for _, events in self._selector.select(max(0.0, wake - time.monotonic())):
            try:
                if events & selectors.EVENT_WRITE:
                    del self._outbox[: self._socket.send(self._outbox[:CHUNK])]
                if events & selectors.EVENT_READ:
                    self._read(self._socket.recv(CHUNK))
            except BlockingIOError:
                continue
            except OSError:
                self._eof = True
        now = time.monotonic()
        if self._stopped is None and now >= self._next_look:
            self._next_look = now + LOOK_S
            if self._cpu_s() - self._cpu_before >= self._limits.cpu_s:
                self._stopped = Status.TIMEOUT, "cpu_s"
        if self._stopped is None and now >= self._clock + self._limits.wall_s and not self._ended():
            self._stopped = Status.TIMEOUT, "wall_s"

    def _read(self, data: bytes) -> None:
        """Take the frames of the attached stream apart."""
        if not data:
            self._eof = True
        self._frames += data
        while len(self._frames) >= HEADER:
            size = int.from_bytes(self._frames[4:HEADER], "big")
            if len(self._frames) < HEADER + size:
                break
            number, body = self._frames[0], bytes(self._frames[HEADER : HEADER + size])
            del self._frames[: HEADER + size]
            room = max(0, self._limits.output_bytes - self._output_seen)
            self._output_seen += len(body)
            if len(body) > room:
                self._stopped = self._stopped or (Status.OUTPUT_LIMIT, "output_bytes")
            if number == STDOUT:
                self._inbox += body[:room]
            elif number == STDERR:
                self._errors += body[: min(room, max(0, self._limits.output_bytes - len(self._errors)))]

    def _cpu_s(self) -> float:
        if self._cpu_file is not None:
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = self._cpu_file.read_text()
                used = int(text.split()[1]) / 1e6 if self._cpu_file.name == "cpu.stat" else int(text) / 1e9
                self._cpu_used = max(self._cpu_used, used)
        return self._cpu_used

    def close(self) -> Outcome:
        if self._outcome is None:
            try:
                self._outcome = self._end()
            finally:
                self._on_close(self)
                shutil.rmtree(self._folder, ignore_errors=True)
        return self._outcome

    def _end(self) -> Outcome:
        """Kill if it runs, ask how it ended, remove it, and make sure that it is gone."""
        self._cpu_s()
        natural = self._eof
        state: dict[str, Any] = {}
        trouble = ""
        try:
            if not natural:
                self._detach()
                with contextlib.suppress(docker.errors.APIError):  # not running (any more)
                    self._api.kill(self._id)
            if self._attached:
                self._api.wait(self._id, timeout=30)
            state = self._api.inspect_container(self._id)["State"]
        except FAULTS as error:
            trouble = f"docker: the container's end couldn't be learnt: {error}"
        wall_s = time.monotonic() - self._started
        try:
            self._api.remove_container(self._id, force=True, v=True)
        except FAULTS as error:
            trouble = trouble or f"docker: the container couldn't be removed: {error}"
        self._detach()
        code = int(state["ExitCode"]) if "ExitCode" in state else None
        return tell(
            code=code,
            stopped=self._stopped,
            out_of_memory=bool(state.get("OOMKilled")),
            closed=not natural,
            trouble=trouble or (f"docker: {state['Error']}" if state.get("Error") else ""),
            stdout=bytes(self._inbox),
            stderr=bytes(self._errors),
            wall_s=wall_s,
            cpu_s=self._cpu_used,
        )

    def _detach(self) -> None:
        """Take what has arrived, then close the streams: while output waits to be taken the daemon kills nothing."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            while not self._eof and self._stopped is None:
                self._read(self._socket.recv(CHUNK))
        self._selector.close()
        self._stream.close()
        self._socket.close()
        self._socket = None


def _cpu_file(pid: int) -> Path | None:
    """Where the CPU time of a process's control group stands, if it is this machine's and can be read."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                if controller in ("cpuacct", ""):
                    folder = CGROUP / ("cpuacct" if controller else "") / path.lstrip("/")
                    file = folder / ("cpuacct.usage" if controller else "cpu.stat")
                    if os.access(file, os.R_OK) and path.strip("/"):
                        return file
    return None
