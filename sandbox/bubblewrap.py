"""The bubblewrap backend, the default: a fresh set of namespaces a program, some ten milliseconds each.

Each line of `_namespaces` and `_view` stands against something that was seen to get through without it:
not --unshare-all (its -try forms fail open), --disable-userns (nested user namespaces), the final --remount-ro
(the root is a tmpfs, and was writable), an unused uid where we are root (the sandbox's root would be the host's,
and RLIMIT_NPROC doesn't bind uid 0), /dev made of five nodes only.
"""

import atexit
import contextlib
import math
import os
import platform
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from sandbox import bwrap_binary, cgroups, interpreters, reach, seccomp
from sandbox.contract import Limits, Outcome, Probe, Program, SandboxUnavailable, Status
from sandbox.supervise import Supervised, adopt_orphans

FIRST_UID = 60706  # 60706 to 61183 belong to nobody (systemd's table of uids)
INSIDE_UID = "1000"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108
DEVICES = ("null", "zero", "full", "random", "urandom")
PRLIMIT = "/usr/bin/prlimit"


class Bubblewrap:
    """`Sandbox` by bwrap, seccomp and a control group (or a watchdog). Raises SandboxUnavailable when made where
    the parts aren't there; whether they hold, `self_test` says.

    groups: how to make control groups; None looks for a way, False uses the watchdog.
    """

    name = "bubblewrap"

    def __init__(self, groups: cgroups.Groups | Literal[False] | None = None):
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"bubblewrap: expected Linux, found {sys.platform}; use --sandbox docker"
            )
        if not os.access(PRLIMIT, os.X_OK):
            raise SandboxUnavailable(f"bubblewrap: expected {PRLIMIT}; install util-linux")
        self._uid = _unused_uid() if os.geteuid() == 0 else None
        self._binary = bwrap_binary.find(self._uid)
        self._groups = cgroups.find() if groups is None else groups or None
        self._filter = seccomp.program(counted=self._groups is not None)
        adopt_orphans()
        self._open: set[Supervised] = set()
        self._lock = threading.Lock()
        self._copied_python: interpreters.Interpreter | None = None
        atexit.register(self.close)

    def run(self, program: Program, limits: Limits) -> Outcome:
        try:
            with self._start(program, limits) as session:
                return session.communicate(program.stdin)
        except SandboxUnavailable as error:
            return Outcome(status=Status.INFRA, detail=str(error))

    def open(self, program: Program, limits: Limits) -> Supervised:
        return self._start(program, limits)

    def self_test(self) -> tuple[Probe, ...]:
        from sandbox.self_test import attack

        return attack(self)

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": self.name,
            "version": self._binary.version,
            "kernel": platform.release(),
            "control": f"cgroup {self._groups.version}" if self._groups else "watchdog",
            "seccomp": platform.machine(),
            "uid": "dropped" if self._uid is not None else "user",
        }

    def close(self) -> None:
        atexit.unregister(self.close)
        with self._lock:
            sessions = list(self._open)
        for session in sessions:
            session.close()
        for copy in (self._binary.copied, self._copied_python.source if self._copied_python else ""):
            if copy:
                shutil.rmtree(copy, ignore_errors=True)

    def _start(self, program: Program, limits: Limits) -> Supervised:
        interpreter = self._interpreter(program.language)
        with _Descriptors() as fds:
            command = [self._binary.path, *_NAMESPACES, *_host_view()]
            if interpreter.prefix:
                command += ["--ro-bind", interpreter.source, interpreter.prefix]
            command += ["--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108
            command += _files(program, fds)
            command += ["--chdir", "/tmp", "--remount-ro", "/"]  # noqa: S108
            command += ["--seccomp", fds.content(self._filter)]
            for key, value in {**ENVIRONMENT, **program.environment}.items():
                command += ["--setenv", key, value]
            info_fd, info = fds.pipe(child_reads=False)
            block_fd, block = fds.pipe(child_reads=True)
            status_fd, status = fds.pipe(child_reads=False)
            command += ["--info-fd", info, "--block-fd", block, "--json-status-fd", status, "--"]
            command += [*_rlimits(limits), interpreter.path]
            command += [
                *interpreters.arguments(program.language, program.environment),
                f"/code/{program.entry}",
            ]
            command += program.argv
            return self._launch(command, fds, limits, info_fd, block_fd, os.dup(status_fd))

    def _launch(
        self,
        command: list[str],
        fds: "_Descriptors",
        limits: Limits,
        info_fd: int,
        block_fd: int,
        status_fd: int,
    ) -> Supervised:
        group = None
        try:
            group = self._groups.make(limits) if self._groups else None
            process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=fds.inherited,
                cwd="/",
                env={},
                start_new_session=True,
                user=self._uid,
                group=self._uid,
                extra_groups=[] if self._uid is not None else None,
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(status_fd)
            if group:
                group.remove()
            raise SandboxUnavailable(f"a sandbox couldn't be started: {error}") from error
        fds.handed_over()
        session = Supervised(
            process,
            limits,
            info_fd=info_fd,
            block_fd=block_fd,
            status_fd=status_fd,
            group=group,
            on_close=self._forget,
        )
        with self._lock:
            self._open.add(session)
        return session

    def _forget(self, session: Supervised) -> None:
        with self._lock:
            self._open.discard(session)

    def _interpreter(self, language: str) -> interpreters.Interpreter:
        """The interpreter, copied once where the dropped uid couldn't read it."""
        with self._lock:
            found = interpreters.find(language)
            if not found.prefix or self._uid is None or reach.by_others(Path(found.path)):
                return found
            if self._copied_python is None:
                self._copied_python = interpreters.copy_of_own(found)
            return self._copied_python


class _Descriptors:
    """The descriptors that one launch needs; all are closed when it is done. The child's are in `inherited`."""

    def __init__(self) -> None:
        self.inherited: list[int] = []
        self._ours, self._theirs = contextlib.ExitStack(), contextlib.ExitStack()

    def __enter__(self) -> "_Descriptors":
        return self

    def __exit__(self, *exc: object) -> None:
        self._theirs.close()
        self._ours.close()

    def give(self, fd: int) -> str:
        """Hand a descriptor to the child; its number, as an argument of bwrap."""
        self._theirs.callback(os.close, fd)
        self.inherited.append(fd)
        return str(fd)

    def handed_over(self) -> None:
        """Close the child's ends here, so that its end is seen."""
        self._theirs.close()

    def content(self, data: bytes) -> str:
        """Bytes that the child reads, without a file."""
        fd = os.memfd_create("content")
        number = self.give(fd)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return number

    def pipe(self, *, child_reads: bool) -> tuple[int, str]:
        """Our end, and the child's as an argument of bwrap."""
        reading, writing = os.pipe()
        mine, theirs = (writing, reading) if child_reads else (reading, writing)
        self._ours.callback(os.close, mine)
        return mine, self.give(theirs)


_NAMESPACES = (
    *(
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup",
    ),
    *("--disable-userns", "--uid", INSIDE_UID, "--gid", INSIDE_UID, "--hostname", "sandbox"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
)


def _host_view() -> list[str]:
    """What of the host is visible: /usr, read-only, a /proc of its own, and five devices."""
    view = ["--ro-bind", "/usr", "/usr"]
    for top in ("bin", "lib", "lib64", "sbin"):
        path = Path("/", top)
        if path.is_symlink():
            view += ["--symlink", str(path.readlink()), f"/{top}"]
        elif path.is_dir():
            view += ["--ro-bind", f"/{top}", f"/{top}"]
    view += ["--proc", "/proc"]
    for device in DEVICES:
        view += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    return [*view, "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/tmp", "/dev/shm"]  # noqa: S108


def _files(program: Program, fds: _Descriptors) -> list[str]:
    """The program's files under /code, which the last remount makes read-only."""
    arguments = []
    for directory in sorted(
        {str(parent) for name in program.files for parent in PurePosixPath("/code", name).parents}
    ):
        if directory != "/":
            arguments += ["--perms", "0755", "--dir", directory]
    for name, content in program.files.items():
        arguments += ["--perms", "0444", "--file", fds.content(content), f"/code/{name}"]
    return arguments


def _rlimits(limits: Limits) -> list[str]:
    """A prlimit call that runs inside, since only there RLIMIT_NPROC counts this sandbox's processes alone.

    RLIMIT_CPU is a second line of defence behind the look at CPU time, so it comes a second later.
    """
    cpu = math.ceil(limits.cpu_s) + 1
    bounds = {"nofile": limits.open_files, "fsize": limits.file_bytes, "nproc": limits.processes, "core": 0}
    options = [f"--{name}={value}:{value}" for name, value in bounds.items()]
    return [PRLIMIT, *options, f"--cpu={cpu}:{cpu + 1}", "--"]


def _unused_uid() -> int:
    for uid in range(FIRST_UID, FIRST_UID + 478):
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise SandboxUnavailable(f"uid drop: expected a free uid from {FIRST_UID} on, found none")
