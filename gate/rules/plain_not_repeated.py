"""plain-not-repeated: plain was decoded once only, so nobody knows whether it repeats itself."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if evidence.plain.repeats_planned < 2:
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            "decoded once only, so it isn't known whether plain repeats itself",
            arm=evidence.plain.arm.name,
            repeats=evidence.plain.repeats_planned,
        )


RULE = TaskRule(
    code="plain-not-repeated",
    severity="unreadable",
    basis="arm",
    summary="Plain was decoded only once.",
    advice="Decode plain at least twice.",
    check=check,
)
