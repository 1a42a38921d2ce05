"""The threat: `gate check --concurrency` that decodes one at a time, blames a head for its batch, or starts in vain."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from gate.cli import gate
from gate.cli.errors import run_guarded

QUICK = ["--task", "count", "--no-control", "--no-state-probe", "--ov", "INFERENCE_PRECISION_HINT=f32"]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (["0"], "expected from 1 to 256"),
        (["1", "500"], "expected from 1 to 256"),
        (["5"], "expected at least 5 prompts"),
    ],
)
def test_a_load_that_can_not_be_is_refused_before_anything_is_decoded(
    numbers: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = [part for n in numbers for part in ("--concurrency", n)]
    argv = ["gate", "check", "--model", "sample", *QUICK, *options, "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", argv)
    assert run_guarded(gate) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_verdict_for_each_load(tmp_path: Path) -> None:
    out = tmp_path / "run"
    argv = [
        "check",
        "--model",
        "sample",
        *QUICK,
        "--concurrency",
        "1",
        "--concurrency",
        "3",
        "--out",
        str(out),
        "-q",
    ]
    ended = CliRunner().invoke(gate, argv, standalone_mode=False)
    assert ended.exception is None, ended.output
    verdict = json.loads((out / "verdict.json").read_text())
    by_arm = {t["arm"]: t for t in verdict["tasks"]}
    assert set(by_arm) == {"mtp@1", "mtp@1/n3"}
    assert [a["arm"] for a in by_arm["mtp@1/n3"]["arms"]] == ["plain/n3", "mtp@1/n3"]
    assert by_arm["mtp@1/n3"]["arms"][1]["acceptance"] > 0.5
    answers = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    sizes = Counter((a["arm"], a["repeat"], a["batch"]) for a in answers if a["arm"].endswith("/n3"))
    assert set(sizes.values()) == {3}
    assert len(sizes) == 2 * 2 * 2
    report = (out / "report.html").read_text()
    assert "beside plain/n3" in report
