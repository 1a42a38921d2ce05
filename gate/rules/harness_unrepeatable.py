"""harness-unrepeatable: two byte-identical answers were judged differently, so the judging is what differs."""

from __future__ import annotations

from collections.abc import Iterator

from gate.cases import pair_cases
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for prompt, case in pair_cases(evidence).flaky:
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"case {case} has two outcomes for two byte-identical answers: the harness differs from itself",
            prompt=prompt,
            case=case,
        )


RULE = TaskRule(
    code="harness-unrepeatable",
    severity="unreadable",
    basis="arm",
    summary="Byte-identical answers were judged differently.",
    advice="Look for a time limit that is too near or a case that depends on chance.",
    check=check,
)
