"""Asking again: does an answer depend on the requests before it, or on which start of the engine gave it?

State probe: an arm's first prompt (or its first batch) once more after all the others, in the same process (session 0)
and in a new one (session 1), and the first conversation likewise, turn by turn. State that leaks from one request into
the next shows as another answer (vllm issue 35800). Fresh starts: the same in N further processes (sessions 2 to
N + 1). Some starts accept no draft, with the text unchanged (openvino.genai issue 4425). A server that the gate can't
start anew has one session.
Whole: a served arm's first prompt of each task once more without a stream: do its pieces make up the same text?
"""

from __future__ import annotations

from collections.abc import Sequence

from evals.batches import Batch
from evals.plan import Plan, Round, Turn, round_of, units
from evals.types import Arm


def probe_rounds(plan: Plan, arms: Sequence[Arm]) -> list[Round]:
    """The rounds that a plan's probes add for these arms, session by session, arms in turn."""
    if not plan.asked:
        return []
    first = units(plan, arms)[0]
    started = [arm for arm in arms if arm.endpoint is None or arm.endpoint.switched]
    found: list[Round] = [
        (Turn(arm, asked, probe="whole"),)
        for asked in {asked.task: asked for asked in reversed(plan.asked) if asked.after is None}.values()
        for arm in arms
        if arm.endpoint is not None and arm.endpoint.stream and arm.concurrency == 1
    ]
    if plan.state_probe:
        found += [
            round_of(plan, arm, unit, 0, session=s, probe="state")
            for s in (0, 1)
            for unit in (first, *_first_conversation(plan, arms, first))
            for arm in (arms, started)[s]
        ]
    sessions = range(2, plan.fresh_starts + 2)
    found += [round_of(plan, arm, first, 0, session=s, probe="start") for s in sessions for arm in started]
    return found


def _first_conversation(plan: Plan, arms: Sequence[Arm], first: Batch) -> list[Batch]:
    """The turns of the plan's first conversation, but for one that is asked as `first` already; none in batches."""
    if arms[0].concurrency > 1:
        return []
    later = next((asked for asked in plan.asked if asked.after is not None), None)
    if later is None:
        return []
    names = {later.after}
    turns: list[int] = []
    for place, asked in enumerate(plan.asked):
        if asked.task == later.task and (asked.prompt in names or asked.after in names):
            names.add(asked.prompt)
            turns.append(place)
    return [Batch((place,), 0) for place in turns if place != first.places[0]]
