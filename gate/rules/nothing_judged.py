"""nothing-judged: no speculative arm, no case, or no task that is required: a pass would be a pass by absence."""

from __future__ import annotations

from collections.abc import Iterator

from gate.cases import pair_cases
from gate.evidence import RunEvidence
from gate.policy import Policy
from gate.rules.base import RunRule, finding
from gate.types import Finding


def check(run: RunEvidence, policy: Policy) -> Iterator[Finding]:
    if not run.evidence:
        yield Finding(
            RULE.code, "unreadable", "no speculative arm or no task was decoded, so nothing was judged"
        )
        return
    if all(policy.requirement(item.task) == "advisory" for item in run.evidence):
        yield Finding(
            RULE.code, "unreadable", "every task is advisory, so the policy requires nothing of this head"
        )
    for item in run.evidence:
        if pair_cases(item).pairs == 0:
            yield finding(item, RULE.code, "unreadable", "no case was judged in both arms")


RULE = RunRule(
    code="nothing-judged",
    severity="unreadable",
    basis="run",
    summary="No case was judged in both arms, or the policy requires nothing.",
    advice="Give the gate a speculative arm and at least one task that the policy does not call advisory.",
    check=check,
)
