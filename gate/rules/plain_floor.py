"""plain-floor: plain passes no case at all, so "no worse than plain" says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gate.cases import pair_cases
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    pairs = pair_cases(evidence)
    if pairs.pairs and not pairs.passed_plain:
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"plain passes 0 of {pairs.pairs} cases, so nothing could be lost and the comparison has no power",
            arm=evidence.plain.arm.name,
            judged=pairs.pairs,
            passed=pairs.passed_arm,
        )


RULE = TaskRule(
    code="plain-floor",
    severity="unreadable",
    basis="cases",
    summary="Plain passes no case of the task.",
    advice="Give the gate a task that this target can do, or more tokens to do it in.",
    check=check,
)
