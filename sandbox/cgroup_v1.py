"""Control groups of version 1, also in the hybrid layout (Documentation/admin-guide/cgroup-v1/memory.rst)."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from sandbox import cgroup_files as files
from sandbox.contract import Limits


class GroupV1:
    """One directory in each of the memory, pids, cpu and cpuacct hierarchies."""

    def __init__(self, directories: dict[str, Path], parents: dict[str, Path], memory_bytes: int):
        self._directories, self._parents, self._memory_bytes = directories, parents, memory_bytes

    @contextlib.contextmanager
    def entered(self) -> Iterator[bool]:
        """Moving another process waits for the kernel's grace period, some ten milliseconds; a thread that moves itself
        doesn't, and what it forks begins where it is.

        Not for the thread that the process's memory is charged to (the first one) where others run beside it: what
        they allocate meanwhile would be the program's.
        """
        alone = threading.get_native_id() != os.getpid() or len(list(Path("/proc/self/task").iterdir())) == 1
        moved: list[str] = []
        try:
            if alone:
                with contextlib.suppress(OSError):
                    for controller, directory in self._directories.items():
                        files.write(directory / "tasks", 0)
                        moved.append(controller)
            yield len(moved) == len(self._directories)
        finally:
            for controller in moved:
                files.write(self._parents[controller] / "tasks", 0)

    def add(self, pid: int | None) -> None:
        if pid is not None:
            for directory in dict.fromkeys(self._directories.values()):
                files.write(directory / "cgroup.procs", pid)
        memory = self._directories["memory"]
        files.write(memory / "memory.limit_in_bytes", self._memory_bytes)
        with contextlib.suppress(FileNotFoundError):  # only with swap accounting
            files.write(memory / "memory.memsw.limit_in_bytes", self._memory_bytes)

    def cpu_s(self) -> float:
        return int((self._directories["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def out_of_memory(self) -> bool:
        return files.keyed(self._directories["memory"] / "memory.oom_control").get("oom_kill", 0) > 0

    def remove(self) -> None:
        files.empty_and_remove(list(dict.fromkeys(self._directories.values())))


class GroupsV1:
    """Version 1 hierarchies (also in the hybrid layout)."""

    version = "v1"
    _controllers = ("memory", "pids", "cpu", "cpuacct")

    def __init__(self, mount: Path = files.MOUNT, proc_cgroup: str | None = None):
        own = files.own_paths(Path("/proc/self/cgroup").read_text() if proc_cgroup is None else proc_cgroup)
        self._parents = {}
        for controller in self._controllers:
            root = mount / controller
            inside = root / own.get(controller, "/").lstrip("/")
            self._parents[controller] = inside if inside.is_dir() else root

    @property
    def parents(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(self._parents.values()))

    def make(self, limits: Limits) -> GroupV1:
        name, made = files.fresh_name(), dict[str, Path]()
        try:
            for controller, parent in self._parents.items():
                directory = (parent / name).resolve()
                if directory not in made.values():
                    directory.mkdir()
                made[controller] = directory
            files.write(made["pids"] / "pids.max", limits.processes + files.OWN)
            files.write(made["cpu"] / "cpu.cfs_period_us", files.PERIOD_US)
            files.write(made["cpu"] / "cpu.cfs_quota_us", int(limits.cores * files.PERIOD_US))
        except OSError:
            files.empty_and_remove(list(made.values()))
            raise
        return GroupV1(made, self._parents, limits.memory_bytes)
