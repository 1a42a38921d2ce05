"""too-few-drafts: so few tokens were drafted that their rate says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    total = acceptance(evidence.spec.first())
    least = policy.thresholds.min_drafts
    if total.drafted and total.drafted < least:
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"{total.drafted} tokens were drafted ({total.accepted} accepted); acceptance is judged from {least} on",
            accepted=total.accepted,
            drafted=total.drafted,
            min_drafts=least,
        )


RULE = TaskRule(
    code="too-few-drafts",
    severity="unreadable",
    basis="arm",
    summary="Too few tokens were drafted to judge acceptance.",
    advice="Decode more prompts or longer answers.",
    check=check,
)
