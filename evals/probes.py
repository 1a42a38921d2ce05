"""Asking again: does an answer depend on the requests before it, or on which start of the engine gave it?

State probe: an arm's first prompt once more after all the others, in the same process (session 0) and in a new one
(session 1). State that leaks from one request into the next shows as another answer (vllm issue 35800).
Fresh starts: the same prompt in N further processes (sessions 2 to N + 1). Some starts accept no draft, with the text
unchanged (openvino.genai issue 4425).
"""

from __future__ import annotations

from evals.plan import Plan, Turn


def probe_turns(plan: Plan) -> list[Turn]:
    """The turns that a plan's probes add, session by session, arms in turn."""
    if not plan.asked:
        return []
    first = plan.asked[0]
    turns = []
    if plan.state_probe:
        turns += [Turn(arm, first, session=s, probe="state") for s in (0, 1) for arm in plan.arms]
    sessions = range(2, plan.fresh_starts + 2)
    turns += [Turn(arm, first, session=s, probe="start") for s in sessions for arm in plan.arms]
    return turns
