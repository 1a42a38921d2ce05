"""score-worse-than-control: fewer cases pass than with a head whose drafts are all thrown away.

The control arm verifies at the same width and accepts nothing, so what it loses against plain, width noise loses. Where
the arm loses and the control doesn't, the loss is the head's doing: a note, and a fault where it is beyond chance.
"""

from __future__ import annotations

from collections.abc import Iterator

from gate.cases import pair_cases
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    scored = evidence.scored
    if scored is None or scored.against_control is None or scored.control_worse_p is None:
        return
    pairs, score = pair_cases(evidence), scored.against_control
    if pairs.passed_arm >= pairs.passed_plain or score.difference >= 0:
        return
    beyond_chance = scored.control_worse_p <= 1 - policy.thresholds.worse_confidence
    tolerated = scored.judgement is not None and scored.judgement.outcome == "non_inferior"
    severity: Severity = "block" if beyond_chance and not tolerated else "note"
    yield finding(
        evidence,
        RULE.code,
        severity,
        f"{score.lost} cases are lost and {score.gained} gained against the control head ({scored.control}), whose "
        f"drafts are all thrown away: the verify width alone does not lose them (p = {scored.control_worse_p:.2g})",
        control=scored.control,
        lost=score.lost,
        gained=score.gained,
        difference=score.difference,
        worse_p=scored.control_worse_p,
    )


RULE = TaskRule(
    code="score-worse-than-control",
    severity="block",
    basis="cases",
    summary="The arm's score is below both plain's and the control arm's: a note, a block where it is beyond chance.",
    advice="Look at the head itself (its quantisation, its KV precision) rather than at the verify width.",
    check=check,
)
