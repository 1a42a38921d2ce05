"""The threat: a check that dies, or runs for ever, because the user's systemd manager doesn't give the scope that was
asked of it; and one that says something else, or with another exit code, for having gone through a scope.

systemd isn't here: a script stands for systemd-run, which runs what comes after `--` as the real one does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import os, sys
from pathlib import Path
from sandbox import cgroups
cgroups.MOUNT = Path(os.environ["FAKE_MOUNT"])
cgroups.find = lambda: None
os.geteuid = lambda: 1000
from gate.cli.scope import enter_scope
enter_scope()
print("went on", os.environ.get("GATE_IN_SCOPE"), sys.argv[1:])
sys.exit(3)
"""
RUNNER = """#!/bin/sh
echo "$@" >> "$FAKE_MOUNT/asked"
[ -e "$FAKE_MOUNT/refuses" ] && { echo 'Failed to connect to bus' >&2; exit 1; }
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A version 2 tree with a systemd-run beside it."""
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    runner = tmp_path / "bin" / "systemd-run"
    runner.parent.mkdir()
    runner.write_text(RUNNER)
    runner.chmod(0o755)
    return tmp_path


def run(machine: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "GATE_IN_SCOPE"}
    environment |= {"PATH": f"{machine}/bin:{os.environ['PATH']}", "FAKE_MOUNT": str(machine)}
    environment |= {"XDG_RUNTIME_DIR": "/run/user/1000", **more}
    return subprocess.run(
        [sys.executable, "-c", CHILD, "check", "--model", "a b"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )


def test_the_same_command_goes_on_in_the_scope_once(machine: Path) -> None:
    ran = run(machine)
    assert (ran.returncode, ran.stdout) == (
        3,
        f"went on 1 {json.dumps(['check', '--model', 'a b'])}\n".replace('"', "'"),
    )
    tried, entered = (machine / "asked").read_text().split("--user --scope")[1:]
    assert tried.endswith("-- true\n") and "Delegate=yes" in entered


def test_a_manager_that_refuses_changes_nothing(machine: Path) -> None:
    (machine / "refuses").touch()
    ran = run(machine)
    assert (ran.returncode, ran.stderr) == (3, "") and ran.stdout.startswith("went on None")


def test_no_scope_is_entered_from_one(machine: Path) -> None:
    ran = run(machine, GATE_IN_SCOPE="1")
    assert ran.returncode == 3 and not (machine / "asked").exists()
