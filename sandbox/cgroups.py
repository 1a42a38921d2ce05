"""Control groups: what bounds the memory, the processes and the CPU rate of all of a program's processes together.

A group is made below the one that this process is in, so that the limits of a surrounding container still hold. Whether
one can be made is found out by making one; where none can, see `sandbox.watchdog`.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sandbox.cgroup_files import MOUNT, PREFIX
from sandbox.cgroup_v1 import GroupsV1
from sandbox.cgroup_v2 import GroupsV2
from sandbox.contract import Limits

STALE_S = 3600


class Group(Protocol):
    """The control group of one program."""

    def entered(self) -> AbstractContextManager[bool]:
        """While it is entered, what this thread forks begins in the group, if it yields True. Raises OSError on leaving
        where the thread can't go back.
        """

    def add(self, pid: int | None) -> None:
        """Move a process in, or None where it began there, and put the memory limit in force. Raises OSError."""

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
