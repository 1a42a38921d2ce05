"""not-a-near-tie: the arm took a token that plain's logits put further from the best than width noise explains."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.margins import describe, facts, read_margin
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted, parted_facts
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for prompt, comparison in evidence.spec.comparisons.items():
        divergence = comparison.divergence
        margin = evidence.margins.get(prompt)
        reading = read_margin(margin, policy, divergence)
        if divergence is None or margin is None or reading is None:
            continue
        if reading.nearness not in ("wide", "open_wide"):
            continue
        severity: Severity = "block" if reading.nearness == "wide" else "unreadable"
        yield finding(
            evidence,
            RULE.code,
            severity,
            f"{parted(divergence)}: {describe(margin, reading)}",
            prompt=prompt,
            **parted_facts(divergence),
            **facts(margin, reading),
        )


RULE = TaskRule(
    code="not-a-near-tie",
    severity="block",
    basis="pair",
    summary="A divergence that is wider than the measured width noise: the wrong token was taken.",
    advice="Do not serve this head on this runtime: verification lets a token pass that the target would not pick.",
    check=check,
)
