"""too-few-pairs: where the policy asks for non-inferiority, neither that nor a loss can be said from these prompts."""

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
    if judgement.outcome != "inconclusive":
        return
    needed = scored.prompts_needed
    if needed is None:
        settle = "no number of prompts that one would run settles it: the loss lies at the margin"
    else:
        settle = f"about {max(1, needed - score.prompts)} more prompts like these would settle it"
    yield finding(
        evidence,
        RULE.code,
        "unreadable",
        f"from {score.prompts} prompts neither non-inferiority (margin {100 * score.margin:.1f} points, the score may "
        f"be lower by {-100 * score.floor:.1f}) nor a loss can be said; {settle}",
        prompts=score.prompts,
        prompts_needed=needed,
        floor=score.floor,
        margin=score.margin,
        worse_p=judgement.worse_p,
        inferior_p=judgement.inferior_p,
    )


RULE = TaskRule(
    code="too-few-pairs",
    severity="unreadable",
    basis="cases",
    summary="Too few prompts to say non-inferior or worse; says how many would settle it.",
    advice="Give the gate more prompts: --variants N makes rewordings of a task's own.",
    check=check,
)
