"""Can a control arm serve as a yardstick? Its permuted head must draft, and all of it must be thrown away."""

from __future__ import annotations

from gate.acceptance import acceptance
from gate.evidence import ArmEvidence
from gate.policy import Policy


def void(control: ArmEvidence, policy: Policy) -> str | None:
    """Why a control arm's answers can't be used, or None."""
    answers = [a for a in control.first() if a.failure is None]
    if not answers:
        return "it has no answers"
    total = acceptance(answers)
    if total.accepted is None or total.drafted is None:
        return "its draft counters are not known"
    if total.rate is None:
        return "it drafted nothing (0/0)"
    limit = policy.thresholds.control_max_acceptance
    if total.rate >= limit:
        counts = f"{total.accepted}/{total.drafted}"
        return f"its permuted head has acceptance {100 * total.rate:.1f} % ({counts}), {100 * limit:.1f} % or more"
    return None
