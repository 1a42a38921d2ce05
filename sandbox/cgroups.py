"""Control groups: what bounds the memory, the processes and the CPU rate of all of a program's processes together.

Version 1 and version 2 are written by the kernel's documented files (Documentation/admin-guide/cgroup-v1/memory.rst,
cgroup-v2.rst). A group is made below the one that this process is in, so that the limits of a surrounding container
still hold. Whether one can be made is found out by making one; where none
can, see `sandbox.watchdog`.
"""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sandbox.contract import Limits

MOUNT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
PREFIX = "mtp-gate-"
STALE_S = 3600
OWN = 2  # processes of the sandbox itself: bwrap as the first, and the one that becomes the program
_count = itertools.count()


class Group(Protocol):
    """The control group of one program."""

    def add(self, pid: int) -> None:
        """Move a process in. Raises OSError."""

    def cpu_s(self) -> float:
        """CPU seconds used so far by everything that ever was in it."""

    def out_of_memory(self) -> bool:
        """True once the kernel killed something in it for memory."""

    def remove(self) -> None:
        """Kill what is left and remove it. Raises OSError when it can't be emptied."""


class Groups(Protocol):
    """A way of making control groups."""

    version: str

    @property
    def parents(self) -> tuple[Path, ...]:
        """The directories in which groups are made."""

    def make(self, limits: Limits) -> Group:
        """A fresh, empty group with the limits set. Raises OSError."""


def _write(path: Path, value: object) -> None:
    with path.open("w") as file:
        file.write(str(value))


def _keyed(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _name() -> str:
    return f"{PREFIX}{os.getpid()}-{next(_count)}"


def _own_paths(proc_cgroup: str) -> dict[str, str]:
    """Controller → path of this process, from the text of /proc/self/cgroup; "" is version 2."""
    paths = {}
    for line in proc_cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _empty_and_remove(directories: list[Path]) -> None:
    for directory in directories:
        for _ in range(200):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pids = [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
                for pid in pids:
                    os.kill(pid, 9)
            try:
                directory.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.005)
        else:
            raise OSError(
                f"{directory}: expected an empty control group, found processes that can't be killed"
            )


class GroupV1:
    """One directory in each of the memory, pids, cpu and cpuacct hierarchies."""

    def __init__(self, directories: dict[str, Path]):
        self._directories = directories

    def add(self, pid: int) -> None:
        for directory in dict.fromkeys(self._directories.values()):
            _write(directory / "cgroup.procs", pid)

    def cpu_s(self) -> float:
        return int((self._directories["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def out_of_memory(self) -> bool:
        return _keyed(self._directories["memory"] / "memory.oom_control").get("oom_kill", 0) > 0

    def remove(self) -> None:
        _empty_and_remove(list(dict.fromkeys(self._directories.values())))


class GroupsV1:
    """Version 1 hierarchies (also in the hybrid layout)."""

    version = "v1"
    _controllers = ("memory", "pids", "cpu", "cpuacct")

    def __init__(self, mount: Path = MOUNT, proc_cgroup: str | None = None):
        own = _own_paths(Path("/proc/self/cgroup").read_text() if proc_cgroup is None else proc_cgroup)
        self._parents = {}
        for controller in self._controllers:
            root = mount / controller
            inside = root / own.get(controller, "/").lstrip("/")
            self._parents[controller] = inside if inside.is_dir() else root

    @property
    def parents(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(self._parents.values()))

    def make(self, limits: Limits) -> GroupV1:
        name, made = _name(), dict[str, Path]()
        try:
            for controller, parent in self._parents.items():
                directory = (parent / name).resolve()
                if directory not in made.values():
                    directory.mkdir()
                made[controller] = directory
            _write(made["memory"] / "memory.limit_in_bytes", limits.memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # only with swap accounting
                _write(made["memory"] / "memory.memsw.limit_in_bytes", limits.memory_bytes)
            _write(made["pids"] / "pids.max", limits.processes + OWN)
            _write(made["cpu"] / "cpu.cfs_period_us", PERIOD_US)
            _write(made["cpu"] / "cpu.cfs_quota_us", int(limits.cores * PERIOD_US))
        except OSError:
            _empty_and_remove(list(made.values()))
            raise
        return GroupV1(made)


class GroupV2:
    """One directory of the unified hierarchy."""

    def __init__(self, directory: Path):
        self._directory = directory

    def add(self, pid: int) -> None:
        _write(self._directory / "cgroup.procs", pid)

    def cpu_s(self) -> float:
        return _keyed(self._directory / "cpu.stat").get("usage_usec", 0) / 1e6

    def out_of_memory(self) -> bool:
        return _keyed(self._directory / "memory.events").get("oom_kill", 0) > 0

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # cgroup.kill: Linux 5.14
            _write(self._directory / "cgroup.kill", 1)
        _empty_and_remove([self._directory])


class GroupsV2:
    """The unified hierarchy, where this process may make children that have controllers.

    A group with processes of its own can't hand controllers on (the rule of no internal processes), so the
    parent is the nearest ancestor that already hands on memory and pids. A scope that `delegated` made for us is
    prepared for that first: whatever is in it moves to a child, and the controllers are handed on.
    """

    version = "v2"

    def __init__(self, mount: Path = MOUNT, proc_cgroup: str | None = None):
        own = _own_paths(Path("/proc/self/cgroup").read_text() if proc_cgroup is None else proc_cgroup)
        here = mount / own.get("", "/").lstrip("/")
        if here.name.startswith(PREFIX) and here.suffix == ".scope" and not _handed_on(here):
            _hand_on(here)
        usable = [
            directory
            for directory in (here, *here.parents)
            if directory.is_relative_to(mount) and {"memory", "pids"} <= set(_handed_on(directory))
        ]
        if not usable:
            raise OSError(
                f"{here}: expected memory and pids in cgroup.subtree_control, found neither there nor above"
            )
        self._parent = usable[0]

    @property
    def parents(self) -> tuple[Path, ...]:
        return (self._parent,)

    def make(self, limits: Limits) -> GroupV2:
        directory = self._parent / _name()
        directory.mkdir()
        try:
            _write(directory / "memory.max", limits.memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # only where swap is configured
                _write(directory / "memory.swap.max", 0)
            _write(directory / "memory.oom.group", 1)
            _write(directory / "pids.max", limits.processes + OWN)
            with contextlib.suppress(FileNotFoundError):  # the rate is a courtesy, the total is measured
                _write(directory / "cpu.max", f"{int(limits.cores * PERIOD_US)} {PERIOD_US}")
        except OSError:
            _empty_and_remove([directory])
            raise
        return GroupV2(directory)


def _handed_on(directory: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return (directory / "cgroup.subtree_control").read_text().split()
    return []


def _hand_on(scope: Path) -> None:
    leader = scope / "leader"
    leader.mkdir(exist_ok=True)
    for pid in (scope / "cgroup.procs").read_text().split():
        _write(leader / "cgroup.procs", pid)
    there = (scope / "cgroup.controllers").read_text().split()
    _write(
        scope / "cgroup.subtree_control",
        " ".join(f"+{name}" for name in ("memory", "pids", "cpu") if name in there),
    )


def delegated(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """The command to run instead, so that an ordinary user's process may make version 2 groups: the same one in a scope
    of the user's own systemd manager. None where there is no such manager, or where it isn't needed.

    Untested by the authors on a machine with systemd: whether it holds, the self-test says.
    """
    if (
        os.geteuid() == 0
        or not (MOUNT / "cgroup.controllers").exists()
        or not environment.get("XDG_RUNTIME_DIR")
    ):
        return None
    runner = shutil.which("systemd-run")
    if runner is None or find() is not None:
        return None
    options = [
        "--user",
        "--scope",
        "--quiet",
        "--collect",
        f"--unit={PREFIX}{os.getpid()}",
        "--property=Delegate=yes",
    ]
    return [runner, *options, "--", *command]


def sweep(parents: Iterable[Path]) -> None:
    """Remove the empty groups that killed processes of ours left behind, an hour ago or more."""
    for parent in parents:
        for left in parent.glob(f"{PREFIX}*-*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                owner = int(left.name.removeprefix(PREFIX).split("-")[0])
                if not Path(f"/proc/{owner}").exists() and time.time() - left.stat().st_mtime > STALE_S:
                    left.rmdir()


def find() -> Groups | None:
    """The first version with which a group can be made and removed here, or None."""
    for kind in (GroupsV2, GroupsV1):
        with contextlib.suppress(OSError, KeyError, ValueError):
            groups: Groups = kind()
            groups.make(Limits()).remove()
            sweep(groups.parents)
            return groups
    return None
