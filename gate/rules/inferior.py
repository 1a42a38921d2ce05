"""inferior: where the policy asks for non-inferiority, cases are lost beyond chance and the margin isn't kept."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    scored = evidence.scored
    if scored is None or scored.judgement is None or scored.against_plain is None:
        return
    score, judgement = scored.against_plain, scored.judgement
    if judgement.outcome != "worse":
        return
    yield finding(
        evidence,
        RULE.code,
        "block",
        f"the score is lower by {-100 * score.difference:.1f} points ({score.lost} cases lost, {score.gained} gained, "
        f"on {score.losing_prompts} of {score.prompts} prompts), beyond chance (p = {judgement.worse_p:.2g}) and not "
        f"within the margin of {100 * score.margin:.1f}",
        difference=score.difference,
        low=score.low,
        high=score.high,
        worse_p=judgement.worse_p,
        inferior_p=judgement.inferior_p,
        margin=score.margin,
    )


RULE = TaskRule(
    code="inferior",
    severity="block",
    basis="cases",
    summary="Cases are lost beyond chance where the policy asks for non-inferiority.",
    advice="Serve this task without the head, or try other numerics (KV precision, precision hint, K = 1).",
    check=check,
)
