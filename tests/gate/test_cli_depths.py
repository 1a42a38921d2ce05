"""The threat: `--depths` that decodes something else than it says, or begins what can't end well.

The real command on the bundled sample, which was trained on short contexts: what it still can do at a depth is its own
affair, so the shallow depth that is decoded here only has to be read right.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evals.records import RunReader

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

GATE = [sys.executable, "-P", "-m", "gate"]


def gate(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GATE, *args], cwd=cwd, capture_output=True, text=True, timeout=500)


def test_a_depth_is_decoded_judged_and_can_be_read_again(tmp_path: Path) -> None:
    asked = ("--task", "count", "--depths", "128", "--no-control", "--no-state-probe", "--allow-limits")
    # a batch smaller than the prompt, so that the engine splits it
    batch = ("--scheduler", "max_num_batched_tokens=64")
    ran = gate(tmp_path, "check", "--model", "sample", "--out", "run", *asked, *batch)
    records = RunReader(tmp_path / "run")
    lengths = {
        task: [a.prompt_tokens for a in records.answers() if a.task == task]
        for task in ("count", "count@128")
    }
    assert len(lengths["count"]) == len(lengths["count@128"]) == 16, ran.stderr
    added = [deep - flat for flat, deep in zip(lengths["count"], lengths["count@128"], strict=True)]
    assert all(120 <= n <= 129 for n in added), added
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    tasks = {t["task"]: t for t in verdict["tasks"]}
    assert set(tasks) == {"count", "count@128"}
    if tasks["count"]["decision"] == "serve_with_limits":
        assert max(tasks["count"]["limits"].values()) <= 128
    again = gate(tmp_path, "grade", "run", "--allow-limits")
    assert again.returncode == ran.returncode, again.stderr
    other = gate(tmp_path, "check", "--model", "sample", "--out", "run", *asked, *batch, "--seed", "1")
    assert other.returncode == 2 and "filler_seed differ" in other.stderr


@pytest.mark.parametrize(
    ("depths", "says"),
    [
        ("20000", "expected at most 16,384 tokens of prompt and answer"),
        ("32", "--depths '32': expected 1 to 16 different numbers"),
    ],
)
def test_a_depth_that_cannot_be_is_refused_before_decoding(tmp_path: Path, depths: str, says: str) -> None:
    ran = gate(tmp_path, "check", "--model", "sample", "--task", "count", "--depths", depths, "--out", "run")
    assert ran.returncode == 2
    assert says in " ".join(ran.stderr.split())
    assert not (tmp_path / "run").exists()
