"""The threat: a cache that passes an answer of other settings for this run's, or old times for measured ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evals.records import RunReader

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def check(cwd: Path, out: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "gate", "check", "--model", "sample", "--task", "count"]
    options = ["--no-control", "--no-state-probe", "--cache", "kept", "--out", out, *args]
    return subprocess.run([*command, *options], cwd=cwd, capture_output=True, text=True, timeout=500)


def test_equal_arms_are_not_decoded_again_and_others_are(tmp_path: Path) -> None:
    first = check(tmp_path, "one")
    assert first.returncode in (0, 1), first.stderr
    again = check(tmp_path, "two")
    assert again.returncode == first.returncode and "decoding 0 answers" in again.stderr, again.stderr
    before = {a.key: a.text for a in RunReader(tmp_path / "one").answers()}
    after = list(RunReader(tmp_path / "two").answers())
    assert {a.key: a.text for a in after} == before
    assert all(a.cached and a.decode_s is None and a.ttft_s is None for a in after)

    other = check(tmp_path, "three", "--k", "2")
    assert other.returncode in (0, 1), other.stderr
    cached = {a.arm: a.cached for a in RunReader(tmp_path / "three").answers()}
    assert cached == {"plain": True, "mtp@2": False}
