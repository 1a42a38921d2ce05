"""Supervision of one bubblewrap process from outside: pipes, clocks, limits, and the certain end of all of it."""

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable

from sandbox import cgroups, pidfds, watchdog
from sandbox.contract import Limits, Outcome, SandboxUnavailable, SessionEnded, Status
from sandbox.ending import tell

CHUNK = 1 << 16
START_S = 30.0  # a sandbox that isn't set up by then is an infrastructure error
END_S = 60.0  # after SIGKILL; a busy machine takes its time to tear a full tmpfs down


class StartFailed(SandboxUnavailable):
    """bwrap ended before the program began; the message has its last words."""


class Supervised:
    """A `Session` over a bwrap process.

    process: started with pipes for all three streams. info_fd, block_fd, status_fd: our ends of bwrap's --info-fd,
    --block-fd and --json-status-fd; the last is closed with the session. inside: it began in its group.
    Raises StartFailed.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        limits: Limits,
        *,
        info_fd: int,
        block_fd: int,
        status_fd: int,
        group: cgroups.Group | None,
        inside: bool,
        on_close: Callable[["Supervised"], None],
    ):
        assert process.stdin and process.stdout and process.stderr
        self._process, self._limits, self._group, self._on_close = process, limits, group, on_close
        self._status_fd = status_fd
        self._stdin, self._stdout, self._stderr = (
            stream.fileno() for stream in (process.stdin, process.stdout, process.stderr)
        )
        self._started = self._clock = time.monotonic()
        self._cpu_before = self._cpu_used = 0.0
        self._inbox, self._errors, self._outbox = bytearray(), bytearray(), bytearray()
        self._output_seen = 0
        self._process_fd = self._first_fd = -1
        self._began = self._natural = False
        self._watchdog: watchdog.Watchdog | None = None
        self._stopped: tuple[Status, str] | None = None
        self._outcome: Outcome | None = None
        self._selector = selectors.DefaultSelector()
        try:
            self._process_fd = os.pidfd_open(process.pid)
            self._begin(info_fd, block_fd, inside)
        except BaseException:
            self.close()
            raise
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        for fd in (self._stdout, self._stderr, self._process_fd):
            self._selector.register(fd, selectors.EVENT_READ)
        self.restart_clock()

    def _begin(self, info_fd: int, block_fd: int, inside: bool) -> None:
        """Learn the first process of the sandbox, bound it, then let the program start."""
        pid = self._first_process(info_fd)
        try:
            self._first_fd = os.pidfd_open(pid)
            if self._group is not None:
                self._group.add(None if inside else pid)
            else:
                self._watchdog = watchdog.Watchdog(pid, self._limits.tmp_bytes)
        except OSError as error:
            raise StartFailed(
                f"the sandbox's first process couldn't be bounded: {error}; {self._last_words()}"
            ) from error
        os.write(block_fd, b"x")
        self._began = True

    def _last_words(self) -> str:
        """What bwrap said before it gave up."""
        pidfds.kill(self._process_fd)
        pidfds.has_ended(self._process_fd, END_S)
        os.set_blocking(self._stderr, False)
        with contextlib.suppress(BlockingIOError):
            return os.read(self._stderr, CHUNK).decode(errors="replace").strip() or "bwrap said nothing"
        return "bwrap said nothing"

    def _first_process(self, info_fd: int) -> int:
        text, end = b"", time.monotonic() + START_S
        with selectors.DefaultSelector() as selector:
            selector.register(info_fd, selectors.EVENT_READ)
            while not text.rstrip().endswith(b"}"):
                piece = b""
                if selector.select(max(0.0, end - time.monotonic())):
                    piece = os.read(info_fd, CHUNK)
                if not piece:
                    raise StartFailed(f"bwrap didn't start a sandbox: {self._last_words()}")
                text += piece
        return int(json.loads(text)["child-pid"])

    def __enter__(self) -> "Supervised":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def restart_clock(self) -> None:
        self._clock = time.monotonic()
        self._output_seen = 0
        self._cpu_before = self._cpu_s()
        self._next_look = self._clock + self._pause(self._limits.cpu_s)

    def send(self, data: bytes) -> None:
        self._outbox += data
        self._want_to_write()
        while self._outbox and not self._ended():
            self._pump()
        if self._ended():
            raise SessionEnded(self.close())

    def receive(self) -> bytes:
        while not self._inbox and not self._ended() and self._is_open(self._stdout):
            self._pump()
        if not self._inbox or self._stopped is not None:
            raise SessionEnded(self.close())
        data, self._inbox = bytes(self._inbox), bytearray()
        return data

    def communicate(self, stdin: bytes) -> Outcome:
        """Program mode: feed all of stdin, close it, collect all output until the end."""
        self._outbox += stdin
        self._want_to_write()
        closed = False
        while not self._ended():
            if not self._outbox and not closed:
                self._close_stdin()
                closed = True
            self._pump()
        return self.close()

    def _want_to_write(self) -> None:
        if self._outbox and self._stdin >= 0 and not self._is_open(self._stdin):
            self._selector.register(self._stdin, selectors.EVENT_WRITE)

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            if self._is_open(self._stdin):
                self._selector.unregister(self._stdin)
            assert self._process.stdin
            self._process.stdin.close()
            self._stdin = -1

    def _is_open(self, fd: int) -> bool:
        return fd in self._selector.get_map()

    def _ended(self) -> bool:
        return self._stopped is not None or self._outcome is not None or not self._is_open(self._process_fd)

    def _pump(self) -> None:
        """Wait for one event or the next limit, whichever comes first, and deal with it."""
        now = time.monotonic()
        wake = min(self._clock + self._limits.wall_s, self._next_look)
        for key, _ in self._selector.select(max(0.0, wake - now)):
            if key.fd == self._process_fd:
                self._selector.unregister(self._process_fd)
            elif key.fd == self._stdin:
                self._write()
            else:
                self._read(key.fd)
        now = time.monotonic()
        if self._stopped is None and now >= self._next_look:
            self._look(now)
        if self._stopped is None and now >= self._clock + self._limits.wall_s and not self._ended():
            self._stopped = Status.TIMEOUT, "wall_s"

    def _write(self) -> None:
        try:
            del self._outbox[: os.write(self._stdin, self._outbox[:CHUNK])]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outbox.clear()
        if not self._outbox:
            self._selector.unregister(self._stdin)

    def _read(self, fd: int) -> None:
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(fd, CHUNK)
            if not data:
                self._selector.unregister(fd)
        room = self._limits.output_bytes - self._output_seen
        self._output_seen += len(data)
        if len(data) > room:
            self._stopped = self._stopped or (Status.OUTPUT_LIMIT, "output_bytes")
        if fd == self._stdout:
            self._inbox += data[: max(0, room)]
        else:
            kept = max(0, self._limits.output_bytes - len(self._errors))
            self._errors += data[: min(kept, max(0, room))]

    def _cpu_s(self) -> float:
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._cpu_used = max(self._cpu_used, self._group.cpu_s())
        elif self._watchdog is not None:
            self._cpu_used = max(self._cpu_used, self._watchdog.cpu_s())
        return self._cpu_used

    def _pause(self, cpu_left_s: float) -> float:
        """Seconds until the next look: in a control group at most `cores` CPU seconds pass in a second."""
        return max(0.01, cpu_left_s / self._limits.cores) if self._group is not None else watchdog.INTERVAL_S

    def _look(self, now: float) -> None:
        """Compare CPU time, and without a control group memory, with their limits."""
        if self._watchdog is not None and self._watchdog.look() > self._limits.memory_bytes:
            self._stopped = Status.KILLED, "memory_bytes"
            return
        left = self._limits.cpu_s - (self._cpu_s() - self._cpu_before)
        if left <= 0:
            self._stopped = Status.TIMEOUT, "cpu_s"
        self._next_look = now + self._pause(left)

    def close(self) -> Outcome:
        if self._outcome is None:
            try:
                self._outcome = self._end()
            finally:
                self._on_close(self)
        return self._outcome

    def _end(self) -> Outcome:
        """Kill, wait until the kernel confirms that the pid namespace is empty, drain, tell."""
        gone = self._wait_for_end()
        wall_s = time.monotonic() - self._started
        self._drain()
        _, wait_status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(wait_status)
        code = self._exit_code()
        cpu_s = max(self._cpu_s(), usage.ru_utime + usage.ru_stime if self._group is None else 0.0)
        out_of_memory, trouble = False, "" if gone else "the sandbox's first process survived SIGKILL"
        if self._group is not None:
            try:
                out_of_memory = self._group.out_of_memory()
                self._group.remove()
            except OSError as error:
                trouble = str(error)
        self._selector.close()
        for fd in (self._process_fd, self._first_fd, self._status_fd):
            if fd >= 0:
                os.close(fd)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream
            with contextlib.suppress(OSError):
                stream.close()
        closed = code is None and self._began and not self._natural
        if code is None and not closed and self._stopped is None and not out_of_memory:
            words = self._errors.decode(errors="replace").strip() or "bwrap said nothing"
            trouble = trouble or f"the program never began: {words}"
        return tell(
            code=code,
            stopped=self._stopped,
            out_of_memory=out_of_memory,
            closed=closed,
            trouble=trouble,
            stdout=bytes(self._inbox),
            stderr=bytes(self._errors),
            wall_s=wall_s,
            cpu_s=cpu_s,
        )

    def _wait_for_end(self) -> bool:
        """Kill the first process of the namespace, and with it all others; then wait for it and for bwrap."""
        self._natural = pidfds.has_ended(self._process_fd)
        if self._watchdog is not None:
            self._watchdog.look()
        if self._first_fd < 0:
            pidfds.kill(self._process_fd)
            return pidfds.has_ended(self._process_fd, END_S)
        # the first process alone, so that bwrap itself is there to reap it
        pidfds.kill(self._first_fd)
        first_gone = pidfds.has_ended(self._first_fd, END_S)
        gone = first_gone and pidfds.has_ended(self._process_fd, END_S)
        pidfds.kill(self._process_fd)
        if first_gone:
            pidfds.reap(self._first_fd)  # unless bwrap did
        return gone

    def _drain(self) -> None:
        for fd in (self._stdout, self._stderr):
            os.set_blocking(fd, False)
            while self._is_open(fd) and self._output_seen <= self._limits.output_bytes:
                before = self._output_seen
                self._read(fd)
                if self._output_seen == before:
                    break

    def _exit_code(self) -> int | None:
        """From bwrap's status documents; None if the program was never started."""
        os.set_blocking(self._status_fd, False)
        text = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._status_fd, CHUNK):
                text += piece
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                document = json.loads(line)
                if "exit-code" in document:
                    return int(document["exit-code"])
        return None
