"""rate-limited: the server had no room for the request; that says nothing of the head."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.failed import failed
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    yield from failed(
        evidence, RULE.code, "rate_limited", "the server answered 429 (too many requests)", infra=True
    )


RULE = TaskRule(
    code="rate-limited",
    severity="unreadable",
    basis="arm",
    summary="The server answered 429 after retries.",
    advice="Ask when the server is free, or raise its limit: the same command with the same --out asks again "
    "for what is owed.",
    check=check,
)
