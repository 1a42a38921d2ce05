"""The threat: a right program that fails for where it was run: a time zone, a locale, a hash seed, a busy
machine.

The gold solutions of the built-in tasks, in every one of those, with every core loaded.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from evals.values import equal
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits
from sandbox.function_mode import CallOutcome, run_function
from tasks.folder import builtin_tasks, read_file
from tasks.types import Task

ENVIRONMENTS = [
    *({"TZ": zone} for zone in ("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Chatham")),
    *({"LANG": name, "LC_ALL": name} for name in ("C", "C.UTF-8", "tr_TR.UTF-8")),
    *({"PYTHONHASHSEED": seed} for seed in ("0", "1", "2", "3", "4294967295")),
]
TASKS = [task for task in builtin_tasks() if task.judge == "function"]


@pytest.fixture(scope="module", autouse=True)
def loaded_machine() -> Iterator[None]:
    """A busy loop on every core."""
    busy = [subprocess.Popen(["python3", "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_gold_passes(bubblewrap: Bubblewrap, task: Task, environment: dict[str, str]) -> None:
    assert task.entry is not None
    limits = Limits(cpu_s=task.cpu_s, wall_s=30)
    source = read_file(task, task.gold).encode()
    calls = [case.args or [] for case in task.cases]
    results = run_function(
        bubblewrap, source, task.entry, calls, limits, task.language, environment=environment
    )
    for case, result in zip(task.cases, results, strict=True):
        if case.raises is None:
            assert result.outcome is CallOutcome.RETURNED, (case.name, result)
            assert equal(case.returns, result.value, task.language), case.name
        else:
            assert (result.outcome, result.error) == (CallOutcome.RAISED, case.raises), case.name
