"""The threat: conversations and tool calls that are right part by part and not as a whole.

The real command on the bundled sample, which was trained on single turns and on no tools: that it calls none is its own
affair; that a score of nothing is never a pass is not.
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
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def gate(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GATE, *args], cwd=cwd, capture_output=True, text=True, timeout=500)


def test_the_examples_are_sound(tmp_path: Path) -> None:
    ran = gate(tmp_path, "tasks", "check", str(EXAMPLES))
    assert ran.returncode == 0, ran.stdout
    assert "weather: gold passes 4 cases, 4 mutants fail" in ran.stdout
    assert "warning" not in ran.stdout


def test_tool_calls_in_a_conversation_through_the_whole_gate(tmp_path: Path) -> None:
    asked = ("--tasks", str(EXAMPLES), "--task", "weather", "--no-control", "--ov", "KV_CACHE_PRECISION=f32")
    ran = gate(tmp_path, "check", "--model", "sample", "--out", "run", *asked)
    records = RunReader(tmp_path / "run")
    answers = list(records.answers())
    assert not [a.failure for a in answers if a.failure is not None], ran.stderr
    assert len([a for a in answers if a.probe is None]) == 2 * 2 * 4 * 3
    assert {a.prompt for a in answers if a.probe == "state"} == {"p1", "p1.2", "p1.3"}
    lengths = {a.prompt: a.prompt_tokens for a in answers if a.arm == "plain"}
    assert lengths["p1"] < lengths["p1.2"] < lengths["p1.3"], "what was said before is part of the prompt"
    for prompt in ("p1", "p1.2", "p1.3"):
        same = {a.prompt_sha256 for a in answers if a.arm == "plain" and a.prompt == prompt}
        assert len(same) == 1
    grades = {(g.arm, g.prompt, g.repeat): [c.case for c in g.cases] for g in records.grades()}
    assert grades["plain", "p1", 0] == ["calls", "city"]
    assert grades["plain", "p1.2", 0] == []
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    if verdict["tasks"][0]["arms"][0]["score"]["passed"] == 0:
        assert ran.returncode == 3 and verdict["decision"] == "inconclusive"
    assert any("leaves the tools out" in caveat for caveat in verdict["caveats"])
    again = gate(tmp_path, "grade", "run")
    assert again.returncode == ran.returncode, again.stderr
    assert (tmp_path / "run" / "report.html").exists()
