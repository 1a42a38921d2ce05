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
        self._own_s: dict[tuple[int, int], float] = {}  # (pid, start time) → its own CPU time when last seen
        self._cpu_s = 0.0

    def look(self) -> int:
        """Sample: bytes of memory in use now, /tmp included; CPU time is kept for `cpu_s`.

        Memory is anonymous and shared pages, each page by its share (Documentation/filesystems/proc.rst), not the
        file pages of the read-only host. A file counts INODE bytes and its content.
        """
        total, with_children_s = 0, 0.0
        for pid in self._living():
            with contextlib.suppress(OSError, ValueError, IndexError):
                total += self._memory(Path(f"/proc/{pid}"))
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                own, reaped = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
                self._own_s[pid, int(fields[19])] = own / TICKS
                with_children_s += (own + reaped) / TICKS
        # children that were reaped count with their parent, ones that nobody waits for only while they are seen
        self._cpu_s = max(self._cpu_s, with_children_s, sum(self._own_s.values()))
        return total + self._scratch()

    def cpu_s(self) -> float:
        """CPU seconds of all processes up to the last look."""
        return self._cpu_s

    def _living(self) -> list[int]:
        """The first process and all of its descendants: in a pid namespace no orphan leaves that tree."""
        found = [self._pid]
        for pid in found:
            with contextlib.suppress(OSError):  # ended meanwhile
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    found += map(int, children.read_text().split())
        return found

    def _scratch(self) -> int:
        """Bytes that /tmp holds; 0 until bwrap has mounted it, since the host's is seen there before."""
        with contextlib.suppress(OSError):
            tmp = os.statvfs(f"/proc/{self._pid}/root/tmp")
            if (tmp.f_blocks, tmp.f_frsize) == (self._tmp_blocks, PAGE):
                return (tmp.f_blocks - tmp.f_bfree) * PAGE + (tmp.f_files - tmp.f_ffree) * INODE
        return 0

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
