"""What stands in for a control group where none can be made: a look, many times a second, at every process of
the program's pid namespace, through /proc.

It bounds memory and CPU time of all processes together like a control group does, only a little late; the number
of processes is bounded by RLIMIT_NPROC, which counts per user namespace since Linux 5.14.
"""

import contextlib
import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
INTERVAL_S = 0.02
INODE = 1024


class Watchdog:
    """Watches the pid namespace whose first process is `pid`, and the file system of `tmp_bytes` on its /tmp."""

    def __init__(self, pid: int, tmp_bytes: int):
        self._pid = pid
        self._tmp_blocks = -(-tmp_bytes // PAGE)
        self._namespace = Path(f"/proc/{pid}/ns/pid").stat().st_ino
        self._cpu: dict[tuple[int, int], float] = {}

    def look(self) -> int:
        """Sample: bytes of memory in use now, /tmp included; CPU time is kept for `cpu_s`.

        Memory is anonymous and shared pages, each page by its share (Documentation/filesystems/proc.rst), not the
        file pages of the read-only host. A file counts INODE bytes and its content.
        """
        total = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                if (entry / "ns/pid").stat().st_ino != self._namespace:
                    continue
                total += self._memory(entry)
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                self._cpu[int(entry.name), int(fields[19])] = sum(map(int, fields[11:13])) / TICKS
        with contextlib.suppress(OSError):
            scratch = os.statvfs(f"/proc/{self._pid}/root/tmp")
            if (scratch.f_blocks, scratch.f_frsize) == (
                self._tmp_blocks,
                PAGE,
            ):  # until it is mounted, the host's is seen
                total += (scratch.f_blocks - scratch.f_bfree) * PAGE
                total += (scratch.f_files - scratch.f_ffree) * INODE
        return total

    def cpu_s(self) -> float:
        """CPU seconds of every process seen so far, living or dead."""
        return sum(self._cpu.values())

    @staticmethod
    def _memory(entry: Path) -> int:
        with contextlib.suppress(OSError):
            rollup = (entry / "smaps_rollup").read_text()
            found = [
                line.split()[1]
                for line in rollup.splitlines()
                if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
            ]
            if found:
                return sum(map(int, found)) << 10
        status = (entry / "status").read_text()
        found = [
            line.split()[1] for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:"))
        ]
        return sum(map(int, found)) << 10
