"""not-exercised: nothing was drafted. 0 of 0 is not 0 %, and never a pass."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    answers = [a for a in evidence.spec.first() if a.failure is None]
    if not answers:
        return
    total = acceptance(answers)
    if total.drafted == 0:
        message = (
            "nothing was drafted (0/0), so speculation was not exercised; that is not an acceptance of 0 %"
        )
    elif evidence.spec.arm.endpoint is not None:
        return  # speculation-unseen says what isn't known there
    elif total.drafted is None and not any(a.multi_token_steps for a in answers):
        message = (
            "the runtime has no draft counters and no step delivered more than one token: no draft was accepted, and "
            "whether any was made isn't known"
        )
    else:
        return
    yield finding(evidence, RULE.code, "unreadable", message, accepted=total.accepted, drafted=total.drafted)


RULE = TaskRule(
    code="not-exercised",
    severity="unreadable",
    basis="arm",
    summary="Nothing was drafted, so nothing can be said of speculation.",
    advice="Check that the head is loaded and drafting is on (K of 1 or more, greedy decoding).",
    check=check,
)
