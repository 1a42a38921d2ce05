"""The bubblewrap backend, the default: a fresh set of namespaces a program, some ten milliseconds each.

Where we are root, an unused uid is taken first: otherwise the sandbox's root would be the host's, and RLIMIT_NPROC
doesn't bind uid 0. The program begins only once its first process is bounded by a control group or watched.
"""

import atexit
import contextlib
import os
import platform
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sandbox import bwrap_arguments as arguments
from sandbox import bwrap_binary, cgroups, interpreters, reach, seccomp
from sandbox.contract import ENVIRONMENT, Limits, Outcome, Probe, Program, SandboxUnavailable, Status
from sandbox.pidfds import adopt_orphans
from sandbox.supervise import Supervised

FIRST_UID = 60706  # 60706 to 61183 belong to nobody (systemd's table of uids)

GAPS = ("the number of files in /tmp is bounded by their memory only",)
WATCHDOG_GAPS = (
    "memory and processes are looked at many times a second, so that a burst is ended, not prevented",
)


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
        if not os.access(arguments.PRLIMIT, os.X_OK):
            raise SandboxUnavailable(f"bubblewrap: expected {arguments.PRLIMIT}; install util-linux")
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
            with self._start(program, limits, session=False) as running:
                return running.communicate(program.stdin)
        except SandboxUnavailable as error:
            return Outcome(status=Status.INFRA, detail=str(error))

    def open(self, program: Program, limits: Limits) -> Supervised:
        return self._start(program, limits, session=True)

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
            "gaps": "; ".join(GAPS if self._groups else (*GAPS, *WATCHDOG_GAPS)),
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

    def _start(self, program: Program, limits: Limits, *, session: bool) -> Supervised:
        interpreter = self._interpreter(program.language)
        with arguments.Descriptors() as fds:
            command = [self._binary.path, *arguments.NAMESPACES, *arguments.host_view()]
            if interpreter.prefix:
                command += ["--ro-bind", interpreter.source, interpreter.prefix]
            command += ["--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108
            command += arguments.files(program, fds)
            command += ["--chdir", "/tmp", "--remount-ro", "/"]  # noqa: S108
            command += ["--seccomp", fds.content(self._filter)]
            for key, value in {**ENVIRONMENT, **program.environment}.items():
                command += ["--setenv", key, value]
            info_fd, info = fds.pipe(child_reads=False)
            block_fd, block = fds.pipe(child_reads=True)
            status_fd, status = fds.pipe(child_reads=False)
            command += ["--info-fd", info, "--block-fd", block, "--json-status-fd", status, "--"]
            command += [*arguments.rlimits(limits, session=session), interpreter.path]
            command += [
                *interpreters.arguments(program.language, program.environment),
                f"/code/{program.entry}",
            ]
            command += program.argv
            return self._launch(command, fds, limits, info_fd, block_fd, os.dup(status_fd))

    def _launch(
        self,
        command: list[str],
        fds: arguments.Descriptors,
        limits: Limits,
        info_fd: int,
        block_fd: int,
        status_fd: int,
    ) -> Supervised:
        group, inside = None, False
        try:
            group = self._groups.make(limits) if self._groups else None
            with group.entered() if group else contextlib.nullcontext(False) as inside:
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
            inside=inside,
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


def _unused_uid() -> int:
    for uid in range(FIRST_UID, FIRST_UID + 478):
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise SandboxUnavailable(f"uid drop: expected a free uid from {FIRST_UID} on, found none")
