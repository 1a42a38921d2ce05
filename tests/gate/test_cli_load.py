"""The threat: `gate check --concurrency` that decodes one at a time, blames a head for its batch, or starts in vain."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gate.cli import gate
from gate.cli.errors import run_guarded

pytestmark = pytest.mark.engine

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


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("load") / "run"
    check(out)
    return out


def check(out: Path) -> None:
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


def records(run: Path, name: str = "answers.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def test_a_verdict_for_each_load(decoded: Path) -> None:
    verdict = json.loads((decoded / "verdict.json").read_text())
    by_arm = {t["arm"]: t for t in verdict["tasks"]}
    assert set(by_arm) == {"mtp@1", "mtp@1/n3"}
    assert [a["arm"] for a in by_arm["mtp@1/n3"]["arms"]] == ["plain/n3", "mtp@1/n3"]
    assert by_arm["mtp@1/n3"]["arms"][1]["acceptance"] > 0.5
    sizes = Counter((a["arm"], a["repeat"], a["batch"]) for a in records(decoded) if a["arm"].endswith("/n3"))
    assert set(sizes.values()) == {3}
    assert len(sizes) == 2 * 2 * 2
    assert "beside plain/n3" in (decoded / "report.html").read_text()


def test_a_run_that_died_in_mid_batch_goes_on_with_whole_batches(decoded: Path, tmp_path: Path) -> None:
    """Two of the last batch's three answers are on disk, as a kill between two records leaves them."""
    cut = tmp_path / "cut"
    shutil.copytree(decoded, cut)
    lines = (cut / "answers.jsonl").read_text().splitlines(keepends=True)
    (cut / "answers.jsonl").write_text("".join(lines[:-1]))
    for name in ("end.json", "verdict.json", "grades.jsonl"):
        (cut / name).unlink()
    check(cut)
    whole, again = records(decoded), records(cut)
    assert again[:-1] == whole[:-1]
    told = ("arm", "prompt", "repeat", "batch", "probe", "ids", "finish")
    assert [again[-1][name] for name in told] == [whole[-1][name] for name in told]
    assert again[-1]["order"] == 2  # the third slot of a session that decoded this batch alone
    before, after = (json.loads((run / "verdict.json").read_text()) for run in (decoded, cut))
    assert (after["decision"], after["reasons"]) == (before["decision"], before["reasons"])
