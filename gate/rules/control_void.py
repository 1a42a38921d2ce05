"""control-void: the control arm accepted drafts or has no answers, so it is no yardstick here."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import ArmEvidence, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, percent
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for control in evidence.controls:
        why = void(control, policy)
        if why is not None:
            yield finding(evidence, RULE.code, "note", f"void as a yardstick: {why}", arm=control.arm.name)


def void(control: ArmEvidence, policy: Policy) -> str | None:
    """Why a control arm's answers can't be used, or None."""
    answers = [a for a in control.first() if a.failure is None]
    if not answers:
        return "it has no answers"
    total = acceptance(answers)
    if total.drafted is None:
        return "its draft counters are not known"
    if total.drafted == 0:
        return "it drafted nothing (0/0)"
    assert total.accepted is not None and total.rate is not None
    if total.rate >= policy.thresholds.control_max_acceptance:
        limit = policy.thresholds.control_max_acceptance
        return (
            f"its permuted head has acceptance {percent(total.accepted, total.drafted)}, {limit:.0%} or more"
        )
    return None


RULE = TaskRule(
    code="control-void",
    severity="note",
    basis="arm",
    summary="The control arm accepted drafts, drafted nothing or has no answers.",
    advice="Take another control seed.",
    check=check,
)
