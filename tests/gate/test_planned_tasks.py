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


def test_only_first_turns_count_as_prompts_to_be_in_flight() -> None:
    first = sum(prompt.after is None for prompt in WEATHER.prompts)
    assert first < len(WEATHER.prompts)
    assert planned_tasks((WEATHER,), settings(concurrency=(first,))) == (WEATHER,)
    with pytest.raises(LoadError, match=f"expected at least {first + 1} prompts, found {first}"):
        planned_tasks((WEATHER,), settings(concurrency=(1, first + 1)))
