"""The threat: a limit that is written to the wrong file, in the wrong unit, or not at all, and a group left behind.

Version 1 is exercised for real where this machine has it. Version 2 is written to a tree of plain files with the names
of the kernel's Documentation/admin-guide/cgroup-v2.rst: what the kernel makes of them isn't tested here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from sandbox import cgroup_files, cgroups
from sandbox.cgroup_v1 import GroupsV1
from sandbox.contract import Limits, Program

LIMITS = Limits(memory_bytes=96 << 20, processes=17, cores=0.5)


def _fake_v2(root: Path, path: str, handed_on: str) -> Path:
    directory = root / path
    directory.mkdir(parents=True)
    for level in (directory, *directory.parents):
        if level.is_relative_to(root):
            (level / "cgroup.subtree_control").write_text(handed_on if level != directory else "")
            (level / "cgroup.controllers").write_text("cpuset cpu io memory pids")
            (level / "cgroup.procs").write_text("")
    return directory


@pytest.fixture
def rmdir_of_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel removes a group's files with it; plain directories want them gone first."""
    plain = Path.rmdir

    def rmdir(self: Path) -> None:
        for file in self.iterdir():
            if not file.is_dir():
                file.unlink()
        plain(self)

    monkeypatch.setattr(Path, "rmdir", rmdir)


def test_v2_limits_are_written_to_the_nearest_parent_that_hands_on(
    tmp_path: Path, rmdir_of_kernel: None
) -> None:
    _fake_v2(tmp_path, "user.slice/session.scope", "cpu memory pids")
    groups = cgroups.GroupsV2(tmp_path, "0::/user.slice/session.scope\n")
    group = groups.make(LIMITS)
    (made,) = (tmp_path / "user.slice").glob("mtp-gate-*")
    assert (made / "memory.max").read_text() == str(96 << 20)
    assert (made / "memory.swap.max").read_text() == "0"
    assert (made / "memory.oom.group").read_text() == "1"
    assert (made / "pids.max").read_text() == "19"
    assert (made / "cpu.max").read_text() == "50000 100000"
    group.add(4711)
    assert (made / "cgroup.procs").read_text() == "4711"
    (made / "cgroup.procs").write_text("")
    (made / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n")
    (made / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n")
    assert group.cpu_s() == 1.5
    assert not group.out_of_memory()
    (made / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert group.out_of_memory()
    group.remove()
    assert not made.exists()


def test_v2_without_a_parent_that_hands_on_is_refused(tmp_path: Path) -> None:
    _fake_v2(tmp_path, "a/b", "cpu")
    with pytest.raises(OSError, match=r"expected memory and pids in cgroup\.subtree_control"):
        cgroups.GroupsV2(tmp_path, "0::/a/b\n")


def test_v2_scope_of_our_own_is_made_to_hand_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "user@1000.service/app.slice/mtp-gate-12.scope"
    scope = _fake_v2(tmp_path, own, "")
    (scope / "cgroup.procs").write_text("12\n13\n")
    moved = []
    plain = cgroup_files.write

    def kernel(path: Path, value: object) -> None:
        if path.name == "cgroup.procs":
            moved.append((path.parent, value))
        elif path.name == "cgroup.subtree_control":  # written with signs, read without
            plain(path, str(value).replace("+", ""))
        else:
            plain(path, value)

    monkeypatch.setattr(cgroup_files, "write", kernel)
    for inside in (own, own + "/leader"):
        made = cgroups.GroupsV2(tmp_path, f"0::/{inside}\n").make(LIMITS)
        assert [path.parent for path in scope.glob("mtp-gate-*/memory.max")]
        del made
    assert moved == [(scope / "leader", "12"), (scope / "leader", "13")]
    assert (scope / "cgroup.subtree_control").read_text() == "memory pids cpu"


def test_v2_somebody_elses_scope_is_left_alone(tmp_path: Path) -> None:
    scope = _fake_v2(tmp_path, "app.slice/app-terminal-1.scope", "")
    (scope / "cgroup.procs").write_text("12\n")
    with pytest.raises(OSError):
        cgroups.GroupsV2(tmp_path, "0::/app.slice/app-terminal-1.scope\n")
    assert not (scope / "leader").exists()


def test_v1_limits_are_written_below_the_own_group(tmp_path: Path, rmdir_of_kernel: None) -> None:
    for controller in ("memory", "pids", "cpu", "cpuacct"):
        (tmp_path / controller / "docker/abc").mkdir(parents=True)
    proc = "8:pids:/docker/abc\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"
    group = cgroups.GroupsV1(tmp_path, proc).make(LIMITS)
    (memory,) = (tmp_path / "memory/docker/abc").glob("mtp-gate-*")
    (pids,) = (tmp_path / "pids/docker/abc").glob("mtp-gate-*")
    (cpu,) = (tmp_path / "cpu/docker/abc").glob("mtp-gate-*")
    group.add(None)
    assert (memory / "memory.limit_in_bytes").read_text() == str(96 << 20)
    assert (memory / "memory.memsw.limit_in_bytes").read_text() == str(96 << 20)
    assert (pids / "pids.max").read_text() == "19"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "50000"
    for part in (memory, pids, cpu, *(tmp_path / "cpuacct/docker/abc").glob("mtp-gate-*")):
        (part / "cgroup.procs").write_text("")
    group.remove()
    assert not list(tmp_path.rglob("mtp-gate-*"))


def test_a_group_that_cannot_be_limited_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_v2(tmp_path, "a", "memory pids")
    plain = cgroup_files.write

    def write(path: Path, value: object) -> None:
        if path.name == "pids.max":
            shutil.rmtree(path.parent)  # as the kernel's own files would go
            path.parent.mkdir()
            raise PermissionError(path)
        plain(path, value)

    monkeypatch.setattr(cgroup_files, "write", write)
    with pytest.raises(PermissionError):
        cgroups.GroupsV2(tmp_path, "0::/a\n").make(LIMITS)
    assert not list(tmp_path.rglob("mtp-gate-*"))


@pytest.mark.system("root")
def test_what_this_machine_has_holds_a_process_and_is_removed() -> None:
    groups = cgroups.find()
    if groups is None:
        return  # the watchdog stands in, and has tests of its own
    group = groups.make(Limits())
    child = subprocess.Popen(["sleep", "100"])
    try:
        group.add(child.pid)
        assert "mtp-gate-" in Path(f"/proc/{child.pid}/cgroup").read_text()
        assert group.cpu_s() >= 0
        assert not group.out_of_memory()
        group.remove()  # kills what is in it
        assert child.wait(10) == -9
    finally:
        child.kill()
    assert "mtp-gate-" not in Path("/proc/self/cgroup").read_text()


@pytest.mark.system("root")
def test_a_thread_that_enters_forks_into_the_group_and_comes_back() -> None:
    groups = cgroups.find()
    if not isinstance(groups, GroupsV1):
        return  # version 2 moves the process
    before = Path("/proc/thread-self/cgroup").read_text()
    found = []

    def fork() -> None:
        group = groups.make(Limits())
        with group.entered() as inside:
            child = subprocess.Popen(["sleep", "100"])
        group.add(None if inside else child.pid)
        found.append(
            (
                inside,
                Path(f"/proc/{child.pid}/cgroup").read_text(),
                Path("/proc/thread-self/cgroup").read_text(),
            )
        )
        found.append(Path("/proc/self/cgroup").read_text())
        group.remove()
        child.wait()

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    (inside, childs, after), whole = found
    assert inside
    assert childs.count("mtp-gate-") == 4
    assert after == whole == before


@pytest.mark.system("root")
def test_the_first_thread_does_not_enter_while_others_run() -> None:
    """Its group is the one that the whole process's memory is charged to."""
    groups = cgroups.find()
    if not isinstance(groups, GroupsV1):
        return
    group, done = groups.make(Limits()), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with group.entered() as inside:
        assert not inside
        assert "mtp-gate-" not in Path("/proc/self/cgroup").read_text()
    done.set()
    thread.join()
    group.remove()


def test_only_old_groups_of_dead_processes_are_swept(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    names = {
        "old": f"mtp-gate-{dead.pid}-0",
        "new": f"mtp-gate-{dead.pid}-1",
        "ours": f"mtp-gate-{os.getpid()}-0",
    }
    for name in (*names.values(), "mtp-gate-x-1", "session-1"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / names["new"])
    cgroups.sweep([tmp_path])
    assert not (tmp_path / names["old"]).exists()
    assert len(list(tmp_path.iterdir())) == 4


def test_cpu_time_of_a_group_is_what_its_process_used() -> None:
    groups = cgroups.find()
    if groups is None:
        return  # the watchdog stands in, and has tests of its own
    group = groups.make(Limits(cores=4))
    code = "import sys, time\nsys.stdin.read()\nwhile time.process_time() < 0.5: pass"
    child = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE)
    group.add(child.pid)
    assert child.stdin
    child.stdin.close()
    child.wait()
    assert 0.3 < group.cpu_s() < 5
    group.remove()


def test_no_scope_is_asked_for_where_none_is_needed() -> None:
    assert cgroups.delegated(["gate"], {}) is None
    if os.geteuid() == 0:
        assert cgroups.delegated(["gate"], {"XDG_RUNTIME_DIR": "/run/user/0"}) is None


def test_a_scope_is_asked_for_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory")
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    monkeypatch.setattr(cgroups, "find", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    command = cgroups.delegated(["gate", "check"], {"XDG_RUNTIME_DIR": "/run/user/1000"})
    assert command is not None
    assert command[:3] == ["/usr/bin/systemd-run", "--user", "--scope"]
    assert f"--unit=mtp-gate-{os.getpid()}" in command
    assert command[-3:] == ["--", "gate", "check"]


def test_the_watchdog_counts_cpu_time_of_children_that_are_gone() -> None:
    from sandbox.bubblewrap import Bubblewrap

    source = (
        b"import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        end = time.process_time() + 0.05\n"
        b"        while time.process_time() < end: pass\n        os._exit(0)\n    os.wait()\n"
        b"print('done', flush=True)\ntime.sleep(100)"
    )
    sandbox = Bubblewrap(False)
    with sandbox.open(
        Program(files={"main.py": source}, entry="main.py"), Limits(wall_s=60, cpu_s=30)
    ) as session:
        session.receive()
        assert session._watchdog is not None
        session._watchdog.look()
        used = session._watchdog.cpu_s()
    sandbox.close()
    assert 0.9 <= used < 5


def test_the_watchdog_counts_memory_that_children_share_once() -> None:
    from sandbox.bubblewrap import Bubblewrap

    source = (
        b"import os, time\nx = bytearray(b'x') * (64 << 20)\nopen('/tmp/y', 'wb').write(b'y' * (16 << 20))\n"
        b"for _ in range(3):\n    if os.fork() == 0: time.sleep(100)\nprint('ready', flush=True)\ntime.sleep(100)"
    )
    sandbox = Bubblewrap(False)
    with sandbox.open(
        Program(files={"main.py": source}, entry="main.py"), Limits(wall_s=60, cpu_s=30)
    ) as session:
        session.receive()
        assert session._watchdog is not None
        used = session._watchdog.look()
    sandbox.close()
    assert 80 << 20 <= used < 150 << 20
