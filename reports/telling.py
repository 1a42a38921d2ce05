"""Picks the differences that tell most about a run: lost cases first, then missing answers, then the widest margins."""

from __future__ import annotations

from typing import NamedTuple

from reports.view import Pair, PromptView, TaskView, View


class Telling(NamedTuple):
    """One difference and where it is."""

    task: TaskView
    prompt: PromptView
    pair: Pair


def most_telling(view: View, count: int) -> list[Telling]:
    """At most `count` differences of speculative arms from the base, the most telling first, one for each prompt."""
    judged = set(view.speculative)
    found = [
        Telling(task, prompt, max(pairs, key=_weight))
        for task in view.tasks
        for prompt in task.prompts
        if (pairs := [pair for pair in prompt.pairs if judged.intersection(pair.side.arms)])
    ]
    return sorted(found, key=lambda one: _weight(one.pair), reverse=True)[:count]


def _weight(pair: Pair) -> tuple[int, bool, float]:
    gap = pair.margin.gap if pair.margin is not None and pair.margin.reproduced else 0.0
    return len(pair.lost), pair.side.failure is not None, gap
