"""The threat: a machine that dies in mid-run, and a resumed run that lost an answer, has one twice, or says otherwise.

A few kills here; `tests/bench/bench_kill.py` makes fifty.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evals.records import RunReader

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

COMMAND = [
    sys.executable,
    "-P",
    "-m",
    "gate",
    "check",
    "--model",
    "sample",
    "--task",
    "count",
    "--no-control",
]


def run(cwd: Path, out: str, kill_after: float | None = None) -> int | None:
    """Run a check; kill -9 the parent after some seconds. Returns the exit code, None if it was killed."""
    with subprocess.Popen(
        [*COMMAND, "--no-state-probe", "--quiet", "--out", out], cwd=cwd, stdout=subprocess.DEVNULL, text=True
    ) as process:
        try:
            return process.wait(timeout=kill_after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return None


def telling(run_dir: Path) -> object:
    """What a verdict says, without what every run measures anew: dates and speeds."""
    verdict = json.loads((run_dir / "verdict.json").read_text())
    tasks = [
        (t["task"], t["arm"], t["decision"], t["reasons"], t["lost"], t["gained"]) for t in verdict["tasks"]
    ]
    return verdict["decision"], verdict["reasons"], tasks


def test_a_run_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    code = run(tmp_path, "whole")
    assert code in (0, 1)
    kills = 0
    for delay in (4.0, 6.0, 9.0):
        if run(tmp_path, "killed", kill_after=delay) is None:
            kills += 1
        time.sleep(0.5)
    begun = (tmp_path / "killed" / "manifest.json").exists()
    if begun:
        with (tmp_path / "killed" / "answers.jsonl").open("ab") as file:
            file.write(b'{"arm": "pl')
    last = [*COMMAND, "--no-state-probe", "--out", "killed"]
    resumed = subprocess.run(last, cwd=tmp_path, capture_output=True, text=True, timeout=800)
    assert resumed.returncode == code, resumed.stderr
    assert not begun or re.search(
        r"killed: answers\.jsonl: the last line was cut after \d+ bytes", resumed.stderr
    )
    assert kills >= 1, "nothing was killed: the machine is faster than this test thinks"
    keys = [answer.key for answer in RunReader(tmp_path / "killed").answers()]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {answer.key for answer in RunReader(tmp_path / "whole").answers()}
    assert telling(tmp_path / "killed") == telling(tmp_path / "whole")
