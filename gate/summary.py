"""What each arm did on a task, in a line of numbers."""

from __future__ import annotations

from statistics import median

from gate.acceptance import acceptance
from gate.evidence import ArmEvidence, Evidence
from gate.types import ArmSummary, Score


def summarise(evidence: Evidence) -> tuple[ArmSummary, ...]:
    """Plain, the speculative arm, and its control arms, in this order."""
    return (
        arm_summary(evidence, evidence.plain),
        arm_summary(evidence, evidence.spec),
        *(arm_summary(evidence, control) for control in evidence.controls),
    )


def arm_summary(evidence: Evidence, arm: ArmEvidence) -> ArmSummary:
    """identical is None for plain, which is what others are compared with."""
    there = [a for a in arm.answers if a.failure is None]
    total = acceptance(arm.first())
    rates = [a.rate for a in there if a.rate is not None]
    waits = [a.ttft_s for a in there if a.ttft_s is not None]
    cases = [c for grade in arm.grades.values() for c in grade.cases if c.outcome != "infra"]
    return ArmSummary(
        arm=arm.arm.name,
        answers=len(there),
        planned=len(evidence.prompts) * arm.repeats_planned,
        identical=None if arm is evidence.plain else sum(c.identical for c in arm.comparisons.values()),
        score=Score(passed=sum(c.outcome == "pass" for c in cases), judged=len(cases)),
        accepted=total.accepted,
        drafted=total.drafted,
        acceptance=total.rate,
        tokens_per_s=median(rates) if rates else None,
        ttft_s=median(waits) if waits else None,
    )
