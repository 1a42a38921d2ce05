"""not-an-api: HTML, a redirect or the like where JSON was due: a proxy's page, not the server."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.failed import failed
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    yield from failed(evidence, RULE.code, "not_api", "something else than the API answered", infra=True)


RULE = TaskRule(
    code="not-an-api",
    severity="unreadable",
    basis="arm",
    summary="HTML or a redirect came where the API should answer.",
    advice="Give the URL of the server itself; a login page or a proxy answers at this one.",
    check=check,
)
