"""plain-drafts: the server that was named as plain speculates, so it is no measure for the other."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, percent
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if evidence.plain.arm.endpoint is None:
        return
    total = acceptance(a for a in evidence.plain.answers if a.failure is None)
    if total.drafted and total.accepted is not None:
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"the plain arm drafts tokens, {percent(total.accepted, total.drafted)} accepted: it isn't plain",
            arm=evidence.plain.arm.name,
            accepted=total.accepted,
            drafted=total.drafted,
        )


RULE = TaskRule(
    code="plain-drafts",
    severity="unreadable",
    basis="arm",
    summary="The plain arm speculates itself.",
    advice="Name a server without speculation with --plain-url (or have --switch-cmd switch it off).",
    check=check,
)
