"""reply-malformed: a served reply that no client of the API could read: no JSON, an error in the middle, no end."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.failed import failed
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    yield from failed(evidence, RULE.code, "malformed", "the reply is not what the API promises", infra=False)


RULE = TaskRule(
    code="reply-malformed",
    severity="block",
    basis="arm",
    summary="A reply over HTTP is no message of OpenAI's API, carries an error, or doesn't end.",
    advice="Report it to the server's makers; check that no proxy in between changes replies.",
    check=check,
)
