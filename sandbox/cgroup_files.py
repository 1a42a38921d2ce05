"""What version 1 and version 2 of control groups share: names, and reading and writing the kernel's files."""

import contextlib
import itertools
import os
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
PREFIX = "mtp-gate-"
OWN = 2  # processes of the sandbox itself: bwrap as the first, and the one that becomes the program
_count = itertools.count()


def write(path: Path, value: object) -> None:
    with path.open("w") as file:
        file.write(str(value))


def keyed(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def fresh_name() -> str:
    return f"{PREFIX}{os.getpid()}-{next(_count)}"


def own_paths(proc_cgroup: str) -> dict[str, str]:
    """Controller → path of this process, from the text of /proc/self/cgroup; "" is version 2."""
    paths = {}
    for line in proc_cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def empty_and_remove(directories: list[Path]) -> None:
    for directory in directories:
        for _ in range(1000):
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
