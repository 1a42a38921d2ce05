"""server-unreachable: no connection, or no answer within the time allowed; that says nothing of the head."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.failed import failed
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    yield from failed(evidence, RULE.code, "unreachable", "the server gave no answer at all", infra=True)


RULE = TaskRule(
    code="server-unreachable",
    severity="unreadable",
    basis="arm",
    summary="The server could not be reached or did not begin to answer.",
    advice="Check that the server is up and that nothing in between drops connections; the same command with the "
    "same --out then asks again for what is owed.",
    check=check,
)
