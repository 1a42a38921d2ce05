"""not-identical: the policy requires this task's answers to be plain's, byte for byte, and one is not."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted, parted_facts
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if policy.requirement(evidence.task) != "identical":
        return
    for prompt, comparison in evidence.spec.comparisons.items():
        if comparison.identical or not comparison.same_context:
            continue
        divergence = comparison.divergence
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"{parted(divergence) if divergence else 'the answer differs'}; the policy requires identical answers",
            prompt=prompt,
            **(parted_facts(divergence) if divergence else {}),
        )


RULE = TaskRule(
    code="not-identical",
    severity="block",
    basis="pair",
    summary="An answer differs from plain's where the policy requires identity.",
    advice="Serve without the head where bit-exactness is needed, or try f32 weights, f32 KV and K = 1.",
    check=check,
)
