"""The threat: a mistake of the user's that ends in a traceback, in silence, or in a verdict.

Every way to be wrong gives one clear sentence (expected, found, where, what to do) and exit code 2, and writes no run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def gate(*args: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "gate", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **env},
        timeout=120,
    )


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


def model_dir(path: Path, *parts: str, config: object = None) -> Path:
    """A directory that looks like an export, of the named parts (stems) with a byte in each file."""
    path.mkdir()
    declared = {"text_config": {"mtp_num_hidden_layers": 1}} if config is None else config
    (path / "config.json").write_text(json.dumps(declared))
    for part in parts:
        for suffix in (".xml", ".bin"):
            (path / f"{part}{suffix}").write_bytes(b"<net/>")
    return path


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    refused(gate("check", "--model", "nowhere", cwd=tmp_path), "nowhere", "expected")


def test_a_directory_that_is_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    refused(gate("check", "--model", "photos", cwd=tmp_path), "photos", "expected")


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    refused(gate("check", "--model", "model.gguf", cwd=tmp_path), "model.gguf", "expected")


def test_a_directory_without_a_head(tmp_path: Path) -> None:
    model_dir(tmp_path / "m", "openvino_language_model", "openvino_text_embeddings_model")
    refused(gate("check", "--model", "m", cwd=tmp_path), "head")


def test_a_directory_with_half_a_head(tmp_path: Path) -> None:
    folder = model_dir(tmp_path / "m", "openvino_language_model", "openvino_mtp_model")
    (folder / "openvino_mtp_model.bin").unlink()
    refused(gate("check", "--model", "m", cwd=tmp_path), "openvino_mtp_model.bin")


@pytest.mark.parametrize("k", ["0", "-1", "65"])
def test_k_out_of_range(tmp_path: Path, k: str) -> None:
    refused(gate("check", "--model", "sample", "--k", k, cwd=tmp_path), "--k", "from 1 to")


def test_k_that_is_no_number(tmp_path: Path) -> None:
    refused(gate("check", "--model", "sample", "--k", "one", cwd=tmp_path), "--k")


def test_a_task_folder_with_a_wrong_key(tmp_path: Path, repo: Path) -> None:
    folder = shutil.copytree(repo / "tasks" / "builtin" / "count", tmp_path / "mine")
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace("title =", "tittle ="))
    refused(gate("check", "--model", "sample", "--tasks", "mine", cwd=tmp_path), "tittle", "task.toml")
    refused(gate("tasks", "check", "mine", cwd=tmp_path), "tittle", "task.toml")


def test_a_task_that_is_not_there(tmp_path: Path) -> None:
    refused(gate("check", "--model", "sample", "--task", "sudoku", cwd=tmp_path), "sudoku", "csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[thresholds]\nmin_speed_ratio = -1\n", ["min_speed_ratio"]),
        ("[thresholds]\nconfidence = 1.5\n", ["confidence"]),
        ("[thresholds]\nconfidnece = 0.9\n", ["confidnece"]),
        ("[requirements.tasks]\nsudoku = 'identical'\n", ["sudoku"]),
        ("this is no TOML", ["gate.toml"]),
        ("schema = 99\n", ["schema"]),
    ],
)
def test_a_policy_that_is_wrong(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "gate.toml").write_text(text)
    refused(gate("check", "--model", "sample", "--policy", "gate.toml", cwd=tmp_path), "gate.toml", *words)


def test_a_policy_that_is_not_there(tmp_path: Path) -> None:
    refused(gate("check", "--model", "sample", "--policy", "none.toml", cwd=tmp_path), "none.toml")


@pytest.mark.parametrize(
    "options",
    [
        ("--ov", "KV_CACHE_PRECISION"),
        ("--scheduler", "cache_size=lots"),
        ("--scheduler", "colour=red"),
        ("--budget", "soon"),
        ("--budget", "0"),
        ("--repeats", "1"),
        ("--device", "the big one"),
        ("--sandbox", "trust-me"),
    ],
)
def test_options_out_of_form(tmp_path: Path, options: tuple[str, str]) -> None:
    refused(gate("check", "--model", "sample", *options, cwd=tmp_path), options[0].lstrip("-"))


def test_a_property_that_the_device_does_not_know(tmp_path: Path) -> None:
    refused(
        gate("check", "--model", "sample", "--ov", "NO_SUCH_PROPERTY=1", cwd=tmp_path), "NO_SUCH_PROPERTY"
    )


def test_an_out_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    refused(gate("check", "--model", "sample", "--task", "count", "--out", "taken", cwd=tmp_path), "taken")


def test_reading_a_run_that_is_none(tmp_path: Path) -> None:
    refused(gate("report", ".", cwd=tmp_path))
    refused(gate("grade", "nowhere", cwd=tmp_path), "nowhere")


def test_no_run_directory_is_left_by_a_refusal(tmp_path: Path) -> None:
    gate("check", "--model", "nowhere", "--out", "run", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
