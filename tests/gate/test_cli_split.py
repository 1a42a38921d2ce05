"""The threat: a head in the split layout that the gate can't be asked about, or answers for with another head."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evals.split_dirs import split_sample

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def sample_dir(repo: Path) -> Path:
    return repo / "evals" / "sample" / "int4"


@pytest.fixture(scope="module")
def model_dir(sample_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return split_sample(sample_dir, tmp_path_factory.mktemp("split") / "m")


@pytest.fixture(scope="module")
def both_dir(sample_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both layouts in one directory."""
    both = split_sample(sample_dir, tmp_path_factory.mktemp("both") / "m")
    for end in ("xml", "bin"):
        (both / f"openvino_mtp_model.{end}").symlink_to(sample_dir / f"openvino_mtp_model.{end}")
    return both


def gate(*arguments: object) -> tuple[int, str]:
    command = [sys.executable, "-m", "gate", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def tasks(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The counting task with one of its prompts."""
    folder = tmp_path_factory.mktemp("tasks") / "counts"
    shutil.copytree(repo / "tasks" / "builtin" / "count", folder)
    text = (folder / "prompts.toml").read_text()
    (folder / "prompts.toml").write_text(text[: text.index("[[prompt]]", 1)])
    task = (folder / "task.toml").read_text().replace('name = "count"', 'name = "counts"')
    (folder / "task.toml").write_text(task)
    return folder


Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(tasks: Path) -> Check:
    """gate check of the small task."""

    def run(model: Path, out: Path, *more: object) -> tuple[int, str]:
        asked = ["--tasks", tasks, "--task", "counts", "--no-state-probe", "--out", out]
        return gate("check", "--model", model, *asked, *more)

    return run


def arms(out: Path) -> dict[str, dict[str, object]]:
    return {arm["name"]: arm for arm in json.loads((out / "manifest.json").read_text())["arms"]}


def test_a_split_head_is_gated_end_to_end_and_verified(model_dir: Path, check: Check, tmp_path: Path) -> None:
    code, output = check(model_dir, tmp_path / "run", "--k", 2)
    assert code == 0, output
    assert {arm["engine"] for arm in arms(tmp_path / "run").values()} == {"openvino-split"}
    assert set(arms(tmp_path / "run")) == {"plain", "mtp@2", "control@2"}
    statement = tmp_path / "run" / "attestation.json"
    code, output = gate("verify", "--model", model_dir, "--attestation", statement)
    assert code == 0, output


def test_both_layouts_of_one_target_are_gated_in_one_run(
    sample_dir: Path, model_dir: Path, check: Check, tmp_path: Path
) -> None:
    code, output = check(
        sample_dir, tmp_path / "run", "--no-control", "--head", f"exported={sample_dir}", "--head",
        f"split={model_dir}",
    )  # fmt: skip
    assert code == 0, output
    found = arms(tmp_path / "run")
    assert set(found) == {"plain", "mtp@1:exported", "mtp@1:split"}
    assert {arm["engine"] for arm in found.values()} == {"openvino-split"}


@pytest.mark.parametrize(("layout", "engine"), [("exported", "openvino-genai"), ("split", "openvino-split")])
def test_of_two_heads_the_named_one_is_gated_and_verified(
    layout: str, engine: str, both_dir: Path, check: Check, tmp_path: Path
) -> None:
    code, output = check(both_dir, tmp_path / "run")
    assert (code, "Name one (--layout exported, --layout" in " ".join(output.split())) == (2, True)
    code, output = check(both_dir, tmp_path / "run", "--no-control", "--layout", layout)
    assert code == 0, output
    assert {arm["engine"] for arm in arms(tmp_path / "run").values()} == {engine}
    statement = tmp_path / "run" / "attestation.json"
    other = {"exported": "split", "split": "exported"}[layout]
    assert gate("verify", "--model", both_dir, "--attestation", statement, "--layout", layout)[0] == 0
    assert gate("verify", "--model", both_dir, "--attestation", statement, "--layout", other)[0] == 1
    assert gate("verify", "--model", both_dir, "--attestation", statement)[0] == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--engine", "openvino-genai"], "no way to decode a head in the split layout"),
        (["--layout", "exported"], "--layout exported names openvino_mtp_model"),
        (["--scheduler", "num_linear_attention_blocks=3"], "has no such setting"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    more: list[str], words: str, model_dir: Path, check: Check, tmp_path: Path
) -> None:
    code, output = check(model_dir, tmp_path / "run", *more)
    assert code == 2
    assert words in " ".join(output.split()) and "Traceback" not in output
    assert not (tmp_path / "run" / "answers.jsonl").exists()
