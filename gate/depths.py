"""How deep a verdict holds: a task and the same task behind filler (`csv`, `csv@512`, `csv@4096`) read as one chain.

The last depth that is safe is the last of an unbroken chain of tasks that may be served: where a depth fails and a
later one passes, nothing is safe beyond the failure, and a depth that can't be judged ends the chain as a failing one.
The task itself then carries the limit, and its deeper selves don't count in the whole again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gate.evidence import Evidence, RunEvidence
from gate.policy import Policy
from gate.speeds import held_up, samples, surely_below
from gate.types import Finding, TaskVerdict
from tasks.depth import base_and_depth

HOLDS = ("serve", "serve_with_limits")
SAYS = {"do_not_serve": "it must not be served", "inconclusive": "it can't be judged"}


def depth_findings(verdicts: Sequence[TaskVerdict], run: RunEvidence, policy: Policy) -> list[Finding]:
    """Up to which depth each task and arm that holds by itself holds deeper, and up to which it is worth it.

    Findings stand at the task itself, with what was seen by depth. Tasks that weren't asked at a depth have none, and
    neither have those that fail at no depth.
    """
    items = {(item.task, item.spec.arm.name): item for item in run.evidence}
    found: list[Finding] = []
    for top in verdicts:
        deeper = sorted(
            (depth, v)
            for v in verdicts
            if (depth := base_and_depth(v.task)[1]) is not None
            and v.arm == top.arm
            and v.task == f"{top.task}@{depth}"
        )
        if deeper and top.decision in HOLDS:
            found += _limits(top, deeper, items, policy)
    return found


def with_limits(verdict: TaskVerdict, findings: Sequence[Finding]) -> TaskVerdict:
    """The task's verdict as its depth findings make it."""
    mine = [f for f in findings if (f.task, f.arm) == (verdict.task, verdict.arm)]
    blocked = [f for f in mine if f.severity == "block"]
    limiting = blocked or [f for f in mine if f.severity == "limit"]
    if not limiting:
        return verdict
    limits = dict(verdict.limits)
    for one in limiting:
        for name, value in one.evidence["limit"].items():
            limits[name] = min(value, limits.get(name, value))
    return msgspec.structs.replace(
        verdict,
        decision="do_not_serve" if blocked else "serve_with_limits",
        reasons=tuple(dict.fromkeys([*verdict.reasons, *(f.code for f in limiting)])),
        sentence=" ".join([verdict.sentence, *(f"{f.message}." for f in limiting)]),
        limits={} if blocked else limits,
    )


def counted(verdicts: Sequence[TaskVerdict]) -> list[TaskVerdict]:
    """The verdicts that make the whole: tasks at a depth count through the task itself, where that was judged too."""
    there = {(v.task, v.arm) for v in verdicts}
    return [v for v in verdicts if (base_and_depth(v.task)[0], v.arm) not in there - {(v.task, v.arm)}]


def _limits(
    top: TaskVerdict,
    deeper: Sequence[tuple[int, TaskVerdict]],
    items: Mapping[tuple[str, str], Evidence],
    policy: Policy,
) -> list[Finding]:
    item = items[top.task, top.arm]
    chain = [(max((a.prompt_tokens for a in item.spec.first()), default=0), top), *deeper]
    by_depth = [_facts(depth, verdict) for depth, verdict in chain]
    safe = 1
    while safe < len(chain) and chain[safe][1].decision in HOLDS:
        safe += 1
    found = []
    if safe < len(chain):
        depth, failing = chain[safe]
        found.append(
            _finding(
                "depth-limit",
                top,
                f"holds up to {chain[safe - 1][0]:,} tokens of context; at {depth:,} {SAYS[failing.decision]} "
                f"({', '.join(failing.reasons)})",
                chain[safe - 1][0],
                by_depth,
            )
        )
    least, confidence = policy.thresholds.min_speed_ratio, policy.thresholds.confidence
    speeds = [list(samples(items[v.task, v.arm]).values()) for _, v in chain]
    worth = 0
    while worth < safe and speeds[worth] and not surely_below(speeds[worth], least, confidence):
        worth += 1
    ratio, before = (chain[i][1].speed_ratio if 0 <= i < safe else None for i in (worth, worth - 1))
    if ratio is not None and before is not None:
        found.append(
            _finding(
                "slower-at-depth",
                top,
                f"decodes at {ratio:.2f} times plain's rate at {chain[worth][0]:,} tokens of context; "
                f"up to {chain[worth - 1][0]:,} it {held_up(before, least)} ({before:.2f})",
                chain[worth - 1][0],
                by_depth,
            )
        )
    return found


def _finding(
    code: str, top: TaskVerdict, message: str, depth: int, by_depth: list[dict[str, Any]]
) -> Finding:
    return Finding(
        code=code,
        severity="limit",
        message=f"{top.task}, {top.arm}: {message}",
        task=top.task,
        arm=top.arm,
        evidence={"limit": {"depth": depth}, "by_depth": by_depth},
    )


def _facts(depth: int, verdict: TaskVerdict) -> dict[str, Any]:
    """What was seen at one depth. depth: tokens of filler, for the task itself its longest prompt."""
    arm = next((a for a in verdict.arms if a.arm == verdict.arm), None)
    return {
        "depth": depth,
        "decision": verdict.decision,
        "speed_ratio": verdict.speed_ratio,
        "acceptance": arm.acceptance if arm else None,
        "passed": arm.score.passed if arm else None,
        "judged": arm.score.judged if arm else None,
    }
