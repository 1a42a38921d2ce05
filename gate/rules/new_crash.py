"""new-crash: a program crashes, hangs or is killed on a case where plain's came to an end."""

from __future__ import annotations

from collections.abc import Iterator

from gate.cases import pair_cases
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.rules.case_lost import cause, outcomes
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for crash in pair_cases(evidence).new_crashes:
        why, place = cause(evidence, crash.prompt, policy)
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"case {crash.case} ends in a {crash.arm.outcome} where plain's did not: {outcomes(crash)}{why}",
            prompt=crash.prompt,
            case=crash.case,
            plain_outcome=crash.plain.outcome,
            outcome=crash.arm.outcome,
            **place,
        )


RULE = TaskRule(
    code="new-crash",
    severity="block",
    basis="cases",
    summary="A generated program crashes, hangs or is killed where plain's was not.",
    advice="Serve this task without the head, or try other numerics (KV precision, precision hint, K = 1).",
    check=check,
)
