"""reply-stalled: a served reply stopped coming and nothing ended it."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.failed import failed
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    yield from failed(evidence, RULE.code, "stalled", "the server fell silent in mid-reply", infra=False)


RULE = TaskRule(
    code="reply-stalled",
    severity="block",
    basis="arm",
    summary="A reply over HTTP stopped coming in the middle.",
    advice="Look into the server's log for that request; --hang-timeout says how long a silence may be.",
    check=check,
)
