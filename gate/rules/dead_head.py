"""dead-head: drafts are made and all but none accepted; the head doesn't belong to this target, or is broken."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance, believed, dead_below
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, percent
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    thresholds = policy.thresholds
    total = acceptance(believed(evidence.spec.first()))
    if total.rate is None or total.accepted is None or total.drafted is None:
        return
    least = dead_below(evidence.spec.arm.k, thresholds)
    if total.drafted >= thresholds.min_drafts and total.rate < least:
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"acceptance {percent(total.accepted, total.drafted)} is below "
            f"{100 * least:.3g} %: this head does not draft for this target",
            accepted=total.accepted,
            drafted=total.drafted,
            threshold=least,
        )


RULE = TaskRule(
    code="dead-head",
    severity="block",
    basis="arm",
    summary="Acceptance is about nothing: a wrong, half-loaded or broken head.",
    advice="Check that head and target come from one checkpoint and that the head was exported whole (`gate inspect`).",
    check=check,
)
