"""constraint-lost: over the prompts of a task judged by constraints fewer of them hold than with plain."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule
from gate.rules.case_lost import lost_cases
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if evidence.judge == "constraints":
        yield from lost_cases(evidence, policy, RULE.code, "constraint")


RULE = TaskRule(
    code="constraint-lost",
    severity="block",
    basis="cases",
    summary="Fewer constraints hold than with plain.",
    advice="Serve this task without the head, or try other numerics (KV precision, precision hint, K = 1).",
    check=check,
)
