"""reply-cut: a served reply ended in the middle, without a finish reason; a client gets no other."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.failed import failed
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    yield from failed(evidence, RULE.code, "cut", "the reply ended before it was finished", infra=False)


RULE = TaskRule(
    code="reply-cut",
    severity="block",
    basis="arm",
    summary="A reply over HTTP ended without a finish reason.",
    advice="Look into the server's log for that request; do not serve a head under which replies are cut off.",
    check=check,
)
