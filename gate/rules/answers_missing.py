"""answers-missing: fewer answers are on record than were planned, and what isn't there can't be judged."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for arm in (evidence.plain, evidence.spec):
        there = {(a.prompt, a.repeat) for a in arm.answers}
        planned = [(p, r) for p in evidence.prompts for r in range(arm.repeats_planned)]
        missing = [place for place in planned if place not in there]
        if missing or not planned:
            first = f", first {missing[0][0]} repeat {missing[0][1]}" if missing else ""
            yield finding(
                evidence,
                RULE.code,
                "unreadable",
                f"{len(missing)} of {len(planned)} planned answers are missing{first}",
                arm=arm.arm.name,
                missing=len(missing),
                planned=len(planned),
            )


RULE = TaskRule(
    code="answers-missing",
    severity="unreadable",
    basis="arm",
    summary="Fewer answers are on record than were planned.",
    advice="Run the same command again with the same --out to decode the rest.",
    check=check,
)
