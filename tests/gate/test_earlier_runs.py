"""The threat: a run of an earlier version that can't be read any more, or says something else than it said.

The runs are kept as those versions wrote them: `tests/fixtures/runs/README.md`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evals.records import RunReader

RUNS = ("first-wired", "with-margins")


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, unpack: Callable[[str], Path]) -> Path:
    return unpack(request.param)


def told(run: Path) -> Any:
    """What a verdict says: all but what another version words or measures otherwise."""
    verdict = json.loads((run / "verdict.json").read_text())
    tasks = [
        {
            name: task[name]
            for name in (
                "task",
                "arm",
                "decision",
                "reasons",
                "prompts",
                "identical",
                "lost",
                "gained",
                "arms",
            )
        }
        for task in verdict["tasks"]
    ]
    return verdict["decision"], verdict["reasons"], verdict["manifest_identity"], tasks


@pytest.mark.parametrize("how", ["report", "grade"])
def test_the_verdict_is_made_again_from_the_records(run: Path, how: str, command: Any) -> None:
    before = told(run)
    assert before[2] == RunReader(run).manifest.identity()
    code, said = command(how, run, "--quiet")
    assert code == 0, said
    assert told(run) == before
    for name in ("report.html", "junit.xml", "summary.md", "attestation.json"):
        assert (run / name).stat().st_size > 0


def test_everything_else_reads_it_too(run: Path, tmp_path: Path, command: Any) -> None:
    answers = sum(1 for _ in RunReader(run).answers())
    code, said = command("export-run", run)
    assert (code, said) == (0, f"{run / 'answers.parquet'}: {answers} rows\n")
    code, said = command("card", run)
    assert code == 0 and "| code |" in said
    code, said = command("runs", tmp_path)
    assert code == 0 and said.split()[4:5] == ["serve"] and str(run) in said
    shutil.copytree(run, tmp_path / "other")
    code, said = command("compare", run, tmp_path / "other")
    assert code == 0 and "the whole: stays serve" in said and "unpaired" not in said


def test_runs_of_two_versions_are_compared(unpack: Any, command: Any) -> None:
    code, said = command("compare", *(unpack(name) for name in RUNS))
    assert code == 0
    assert "csv mtp@1: 36 -> 36 of 40 cases, 4 of 4 answers the same" in said
    assert "unpaired task prose: only in run B" in said


@pytest.mark.parametrize("how", ["report", "grade", "card", "export-run", "compare"])
def test_a_run_of_a_later_version_is_refused_in_a_sentence(how: str, unpack: Any, command: Any) -> None:
    run = unpack("first-wired")
    manifest = json.loads((run / "manifest.json").read_text()) | {"schema": 2, "unheard": "of"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    before = (run / "verdict.json").read_bytes()
    code, said = command(how, run, *([run] if how == "compare" else []))
    assert code == 2 and "schema 1 or earlier, found schema 2" in said and said.count("\n") == 1
    assert (run / "verdict.json").read_bytes() == before
