"""server-error: HTTP 5xx in place of an answer; that says nothing of the head."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.failed import failed
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    yield from failed(evidence, RULE.code, "server_error", "the server answered HTTP 5xx", infra=True)


RULE = TaskRule(
    code="server-error",
    severity="unreadable",
    basis="arm",
    summary="The server answered HTTP 5xx after retries.",
    advice="Look into the server's log; when it is well again, the same command with the same --out asks again for "
    "what is owed.",
    check=check,
)
