"""The threat: a plan that can't be decoded as it was asked for, found out after an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals.batches import LoadError
from gate.planning import Settings, planned_tasks
from tasks.folder import builtin_tasks, load_task

WEATHER = load_task(Path(__file__).parents[2] / "docs/examples/weather")


def settings(**changes: object) -> Settings:
    return Settings(model=Path("m"), model_name="m", out=Path("o"), **changes)  # type: ignore[arg-type]


def test_each_task_is_followed_by_itself_at_its_depths() -> None:
    count = next(task for task in builtin_tasks() if task.name == "count")
    found = planned_tasks((count,), settings(depths=(512, 4096), variants=2, seed=3))
    assert [task.name for task in found] == ["count", "count@512", "count@4096"]
    assert len({task.prompts for task in found}) == 1 and found[0].prompts[-1].id == "v3-002"


def test_a_conversation_cannot_share_a_batch_with_itself() -> None:
    assert planned_tasks((WEATHER,), settings()) == (WEATHER,)
    with pytest.raises(LoadError, match="found the conversation weather"):
        planned_tasks((WEATHER,), settings(concurrency=(1, 4)))
