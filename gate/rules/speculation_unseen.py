"""speculation-unseen: a server tells nothing of drafts, so whether speculation ran isn't known. Unknown is not zero."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    answers = [a for a in evidence.spec.first() if a.failure is None]
    if evidence.spec.arm.endpoint is None or not answers or acceptance(answers).drafted is not None:
        return
    yield finding(
        evidence,
        RULE.code,
        "unreadable",
        "the server tells nothing of drafts, neither in its replies nor in /metrics nor in a log, so whether "
        "speculation ran isn't known; that is not an acceptance of 0 %",
        answers=len(answers),
    )


RULE = TaskRule(
    code="speculation-unseen",
    severity="unreadable",
    basis="arm",
    summary="Nothing shows that the served arm speculated.",
    advice="Name the server's log with --spec-log (and how it says it with --spec-log-pattern), or switch its /metrics "
    "on.",
    check=check,
)
