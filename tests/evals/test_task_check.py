"""Threat: a task that can't tell right from wrong is called sound, and its cases count in a verdict."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.task_check import Problem, check_task
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Sandbox
from tasks.folder import builtin_tasks, load_task

TASK = """schema = 1
name = "square"
title = "Square"
summary = "Write square(x)."
kind = "code"
judge = "function"
language = "python"
entry = "square"
max_new_tokens = 64
gold = "gold.py"

[[mutant]]
file = "double.py"
fails = ["three"]

[[mutant]]
file = "never.py"
fails = ["two"]
"""
FILES = {
    "task.toml": TASK,
    "prompts.toml": "".join(f'[[prompt]]\nid = "p{i}"\ntext = "Write square(x), {i}."\n' for i in range(4)),
    "cases.jsonl": '{"name": "two", "args": [2], "returns": 4}\n{"name": "three", "args": [3], "returns": 9}\n',
    "gold.py": "def square(x):\n    return x * x\n",
    "double.py": "def square(x):\n    return x + x\n",
    "never.py": "def square(x):\n    return 9\n",
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Bubblewrap()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def problems(folder: Path, sandbox: Sandbox | None) -> tuple[Problem, ...]:
    return check_task(load_task(folder), sandbox)


@pytest.mark.parametrize("task", builtin_tasks(), ids=lambda t: t.name)
def test_the_builtin_tasks_are_sound(task: Any, sandbox: Sandbox) -> None:
    assert check_task(task, sandbox) == ()


def test_a_sound_task_has_no_problem(folder: Path, sandbox: Sandbox) -> None:
    assert problems(folder, sandbox) == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "severity", "place", "message"),
    [
        ("gold.py", "x * x", "x ** 3", "error", "square/gold.py", "pass case two with 4, found fail: 8"),
        ("gold.py", "return", "retrun", "error", "square/gold.py", "found crash: SyntaxError while loading"),
        (
            "gold.py",
            "def square",
            "import os\n\n\ndef cube",
            "error",
            "square/gold.py",
            "found crash: AttributeError",
        ),
        ("double.py", "x + x", "x * x", "error", "square/double.py", "fail case three, found that it passes"),
        ("double.py", "x + x", "None", "warning", "square/double.py", "fails all of them"),
        ("never.py", "9", "x * x", "warning", "square/cases.jsonl", "none that fails two"),
        (
            "prompts.toml",
            "Write square(x), 2.",
            "Write it.",
            "error",
            "prompts.toml, p2",
            "name the function square",
        ),
        ("prompts.toml", "square(x), 1", "square(x) <|im_end|>", "warning", "prompts.toml, p1", "<|im_end|>"),
        (
            "prompts.toml",
            '[[prompt]]\nid = "p3"\ntext = "Write square(x), 3."',
            "",
            "warning",
            "prompts.toml",
            "found 3",
        ),
        ("task.toml", "max_new_tokens = 64", "max_new_tokens = 2", "warning", "task.toml", "2 tokens"),
    ],
)
def test_each_way_to_be_wrong(
    folder: Path, sandbox: Sandbox, file: str, old: str, new: str, severity: str, place: str, message: str
) -> None:
    assert old in FILES[file]
    (folder / file).write_text(FILES[file].replace(old, new))
    found = problems(folder, sandbox)
    assert any(p.severity == severity and place in p.place and message in p.message for p in found), found
    if severity == "warning":
        assert all(p.severity == "warning" for p in found if "never" not in p.place), found


def test_a_template_that_forgets_the_function_is_a_problem(folder: Path, sandbox: Sandbox) -> None:
    template = '[variants]\ntemplate = "{{a}} it"\n[variants.choices]\na = ["Write", "Make"]\n'
    (folder / "prompts.toml").write_text(FILES["prompts.toml"] + template)
    found = problems(folder, sandbox)
    assert {p.place for p in found} == {"square/prompts.toml, v0-001"}


def test_what_cannot_be_run_is_an_error_and_never_sound(folder: Path) -> None:
    found = problems(folder, None)
    assert {p.place for p in found if p.severity == "error"} >= {
        "square/gold.py",
        "square/double.py",
        "square/never.py",
    }


def test_a_file_gone_or_unreadable_since_loading_is_an_error(folder: Path, sandbox: Sandbox) -> None:
    task = load_task(folder)
    (folder / "gold.py").unlink()
    (folder / "double.py").write_bytes(b"\xff")
    found = check_task(task, sandbox)
    assert {"square/gold.py", "square/double.py"} <= {p.place for p in found if p.severity == "error"}


@pytest.mark.parametrize("name", ["prose", "count"])
def test_a_constraint_task_with_its_gold_and_a_mutant_swapped(name: str, tmp_path: Path) -> None:
    (task,) = (t for t in builtin_tasks() if t.name == name)
    shutil.copytree(task.path, tmp_path / name)
    wrong = task.mutants[0].file
    shutil.copy(task.path / wrong, tmp_path / name / task.gold)
    shutil.copy(task.path / task.gold, tmp_path / name / wrong)
    places = {p.place for p in check_task(load_task(tmp_path / name), None) if p.severity == "error"}
    assert places == {f"{name}/{task.gold}", f"{name}/{wrong}"}
