"""Control groups of version 2, the unified hierarchy (Documentation/admin-guide/cgroup-v2.rst)."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sandbox import cgroup_files as files
from sandbox.contract import Limits


class GroupV2:
    """One directory of the unified hierarchy."""

    def __init__(self, directory: Path):
        self._directory = directory

    @contextlib.contextmanager
    def entered(self) -> Iterator[bool]:
        yield False  # a thread alone can't go into a group of its own there

    def add(self, pid: int | None) -> None:
        if pid is not None:
            files.write(self._directory / "cgroup.procs", pid)

    def cpu_s(self) -> float:
        return files.keyed(self._directory / "cpu.stat").get("usage_usec", 0) / 1e6

    def out_of_memory(self) -> bool:
        return files.keyed(self._directory / "memory.events").get("oom_kill", 0) > 0

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # cgroup.kill: Linux 5.14
            files.write(self._directory / "cgroup.kill", 1)
        files.empty_and_remove([self._directory])


class GroupsV2:
    """The unified hierarchy, where this process may make children that have controllers.

    A group with processes of its own can't hand controllers on (the rule of no internal processes), so the
    parent is the nearest ancestor that already hands on memory and pids. A scope that `delegated` made for us is
    prepared for that first: whatever is in it moves to a child, and the controllers are handed on.
    """

    version = "v2"

    def __init__(self, mount: Path = files.MOUNT, proc_cgroup: str | None = None):
        own = files.own_paths(Path("/proc/self/cgroup").read_text() if proc_cgroup is None else proc_cgroup)
        here = mount / own.get("", "/").lstrip("/")
        if here.name.startswith(files.PREFIX) and here.suffix == ".scope" and not _handed_on(here):
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
        directory = self._parent / files.fresh_name()
        directory.mkdir()
        try:
            files.write(directory / "memory.max", limits.memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # only where swap is configured
                files.write(directory / "memory.swap.max", 0)
            files.write(directory / "memory.oom.group", 1)
            files.write(directory / "pids.max", limits.processes + files.OWN)
            with contextlib.suppress(FileNotFoundError):  # the rate is a courtesy, the total is measured
                files.write(directory / "cpu.max", f"{int(limits.cores * files.PERIOD_US)} {files.PERIOD_US}")
        except OSError:
            files.empty_and_remove([directory])
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
        files.write(leader / "cgroup.procs", pid)
    there = (scope / "cgroup.controllers").read_text().split()
    files.write(
        scope / "cgroup.subtree_control",
        " ".join(f"+{name}" for name in ("memory", "pids", "cpu") if name in there),
    )
