"""Threat: a prompt's picture is not what the arms were shown, or is passed on where a report must not show it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from evals.decode import Asked
from evals.engine.protocol import IMAGE_TAG
from evals.margins import Margins
from evals.model_dir import inspect_model
from evals.plan import Plan
from evals.records import RunReader
from evals.sample import sample_dir
from evals.types import Answer

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

COLOURS = {"red": (220, 30, 30), "blue": (40, 60, 220)}
TASK = """schema = 1
name = "colour"
title = "Colour of a picture"
summary = "Say which colour a picture has."
kind = "prose"
judge = "constraints"
max_new_tokens = 30
gold = "gold.txt"

[[mutant]]
file = "mutant.txt"
fails = ["short"]
"""


def gate(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "gate", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280)


def write_task(folder: Path) -> None:
    folder.mkdir()
    prompts = [
        f'[[prompt]]\nid = "{name}"\ntext = "What colour is this picture?"\nimage = "{name}.png"\n'
        for name in COLOURS
    ]
    for name, rgb in COLOURS.items():
        Image.new("RGB", (256, 256), rgb).save(folder / f"{name}.png")
    (folder / "task.toml").write_text(TASK)
    (folder / "prompts.toml").write_text("\n".join(prompts))
    (folder / "cases.jsonl").write_text('{"name": "short", "constraint": "words", "min": 1, "max": 9}\n')
    (folder / "gold.txt").write_text("The picture is red.\n")
    (folder / "mutant.txt").write_text("It is a picture of which one can hardly say what it is.\n")


CHECK = ("check", "--model", "sample", "--tasks", "colour", "--task", "colour", "--out", "run")
FEW = ("--no-control", "--no-state-probe")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("picture")
    write_task(folder / "colour")
    return folder, gate(folder, *CHECK, *FEW)


def test_both_arms_see_each_prompts_own_picture(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = ran
    answers = list(RunReader(folder / "run").answers())
    assert len(answers) == 2 * 2 * 2, result.stderr
    for answer in answers:
        assert answer.failure is None
        assert answer.prompt in answer.text.lower(), (answer.arm, answer.prompt, answer.text)
        assert sum(answer.steps) == len(answer.ids)
        assert (answer.drafted is not None) == (answer.arm != "plain")
    assert len({answer.prompt_sha256 for answer in answers}) == 2, "one text, two pictures"
    assert json.loads((folder / "run" / "verdict.json").read_text())["tasks"][0]["task"] == "colour"


def test_report_shows_a_small_picture_and_none_when_redacted(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = ran
    assert (folder / "run" / "report.html").read_text().count('<img src="data:image/jpeg;base64,') == 2
    redacted = gate(folder, "report", "run", "--redact")
    assert redacted.returncode == result.returncode, redacted.stderr
    assert "<img" not in (folder / "run" / "report.html").read_text()


def test_a_run_goes_on_only_with_the_picture_that_it_began_with(
    ran: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = ran
    Image.new("RGB", (256, 256), COLOURS["blue"]).save(folder / "colour" / "red.png")
    result = gate(folder, *CHECK, *FEW)
    assert result.returncode == 2
    assert "tasks" in result.stderr and "Traceback" not in result.stderr


def test_the_task_is_checked_like_any_other(tmp_path: Path) -> None:
    write_task(tmp_path / "colour")
    assert gate(tmp_path, "tasks", "check", "colour").returncode == 0
    (tmp_path / "colour" / "red.png").write_bytes(b"no picture")
    result = gate(tmp_path, "tasks", "check", "colour")
    assert result.returncode == 2
    assert "PNG or JPEG" in result.stderr and "Traceback" not in result.stderr


def test_a_target_without_a_vision_part_is_refused_before_decoding(tmp_path: Path) -> None:
    write_task(tmp_path / "colour")
    (tmp_path / "blind").mkdir()
    for file in sample_dir().iterdir():
        if "vision" not in file.name:
            (tmp_path / "blind" / file.name).symlink_to(file)
    result = gate(tmp_path, *(a if a != "sample" else "blind" for a in CHECK), *FEW)
    assert result.returncode == 2
    assert "vision-language" in result.stderr and "colour/red" in result.stderr
    shutil.copytree(sample_dir(), tmp_path / "cut")
    os.truncate(tmp_path / "cut" / "openvino_vision_embeddings_merger_model.bin", 9)
    result = gate(tmp_path, *(a if a != "sample" else "cut" for a in CHECK), *FEW)
    assert result.returncode == 2 and "merger_model.bin: broken: 9 bytes" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_divergence_on_a_picture_has_no_margin_and_that_is_said() -> None:
    asked = Asked("colour", "red", f"{IMAGE_TAG}What?", 30, b"picture")
    plan = Plan(model=sample_dir(), arms=(), repeats={}, asked=(asked,), stop_ids=frozenset())
    base, other = (
        Answer(arm, "colour", "red", 0, asked.sha256, 9, 30, ids=ids)
        for arm, ids in (("plain", (1, 2)), ("mtp@1", (1, 3)))
    )
    with Margins(plan, inspect_model(sample_dir()), [(base, other)]) as margins:
        assert list(margins) == []
    assert margins.planned == 0
    assert margins.problem is not None and "picture" in margins.problem
