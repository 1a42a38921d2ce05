"""The arguments of bwrap, and the descriptors that some of them name.

Each stands against something that was seen to get through without it: not --unshare-all (its -try forms fail open),
--disable-userns (nested user namespaces), a last --remount-ro of / (a tmpfs, and was writable), five devices only.
"""

import contextlib
import math
import os
from pathlib import Path, PurePosixPath

from sandbox.contract import Limits, Program

INSIDE_UID = "1000"
DEVICES = ("null", "zero", "full", "random", "urandom")
PRLIMIT = "/usr/bin/prlimit"


class Descriptors:
    """The descriptors that one launch needs; all are closed when it is done. The child's are in `inherited`."""

    def __init__(self) -> None:
        self.inherited: list[int] = []
        self._ours, self._theirs = contextlib.ExitStack(), contextlib.ExitStack()

    def __enter__(self) -> "Descriptors":
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


NAMESPACES = (
    *(f"--unshare-{name}" for name in ("user", "ipc", "pid", "net", "uts", "cgroup")),
    *("--disable-userns", "--uid", INSIDE_UID, "--gid", INSIDE_UID, "--hostname", "sandbox"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
)


def host_view() -> list[str]:
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


def files(program: Program, fds: Descriptors) -> list[str]:
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


def rlimits(limits: Limits, *, session: bool) -> list[str]:
    """A prlimit call that runs inside, since only there RLIMIT_NPROC counts this sandbox's processes alone.

    RLIMIT_CPU is a second line of defence behind the look at CPU time, so it comes a second later; not in a session,
    whose allowance begins again with each call.
    """
    bounds = {"nofile": limits.open_files, "fsize": limits.file_bytes, "nproc": limits.processes, "core": 0}
    options = [f"--{name}={value}:{value}" for name, value in bounds.items()]
    if not session:
        cpu = math.ceil(limits.cpu_s) + 1
        options.append(f"--cpu={cpu}:{cpu + 1}")
    return [PRLIMIT, *options, "--"]
