"""The threat: a remedy that is guessed, not measured, or one that is called served because nothing was looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_remedies_of_a_blocked_task_are_decoded_and_judged_in_the_policys_order(tmp_path: Path) -> None:
    """A policy that calls every head dead blocks whatever the numerics: each remedy is tried, and none is served."""
    (tmp_path / "gate.toml").write_text(
        'remedies = ["K=1", "KV_CACHE_PRECISION=f32, INFERENCE_PRECISION_HINT=f32", "NO_SUCH_PROPERTY=1"]\n'
        "[thresholds]\ndead_acceptance = 1.0\nmin_drafts = 1\n"
    )
    command = [
        sys.executable,
        "-P",
        "-m",
        "gate",
        "check",
        "--model",
        "sample",
        "--task",
        "prose",
        "--k",
        "2",
    ]
    options = ["--no-control", "--no-state-probe", "--policy", "gate.toml", "--remedies", "--out", "run"]
    result = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=800)
    assert result.returncode == 1, result.stderr
    (found,) = json.loads((tmp_path / "run" / "remedies.json").read_text())
    assert (found["task"], found["arm"], found["served"]) == ("prose", "mtp@2", None)
    assert [t["remedy"] for t in found["tried"]] == [
        "K=1",
        "KV_CACHE_PRECISION=f32, INFERENCE_PRECISION_HINT=f32",
        "NO_SUCH_PROPERTY=1",
    ]
    assert [t["decision"] for t in found["tried"]] == ["do_not_serve", "do_not_serve", None]
    assert all(t["speed"] for t in found["tried"][:2])
    assert "none of those tried would be served" in result.stdout
