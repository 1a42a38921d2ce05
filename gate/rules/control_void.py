"""control-void: the control arm accepted drafts or has no answers, so it is no yardstick here."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding
from gate.yardstick import void


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for control in evidence.controls:
        why = void(control, policy)
        if why is not None:
            yield finding(evidence, RULE.code, "note", f"void as a yardstick: {why}", arm=control.arm.name)


RULE = TaskRule(
    code="control-void",
    severity="note",
    basis="arm",
    summary="The control arm accepted drafts, drafted nothing or has no answers.",
    advice="Take another control seed.",
    check=check,
)
