"""diverged: an answer differs from plain's and its margin is not known, so near-tie or not can't be said."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.margins import describe, facts, read_margin
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted, parted_facts
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for prompt, comparison in evidence.spec.comparisons.items():
        divergence = comparison.divergence
        if divergence is None:
            continue
        margin = evidence.margins.get(prompt)
        reading = read_margin(margin, policy, divergence)
        if margin is not None and reading is not None:
            if reading.nearness != "open":
                continue
            why, extra = describe(margin, reading), facts(margin, reading)
        else:
            why, extra = "its margin was not measured, so whether it is a near-tie isn't known", {}
        yield finding(
            evidence,
            RULE.code,
            "note",
            f"{parted(divergence)}: {why}",
            prompt=prompt,
            **parted_facts(divergence),
            **extra,
        )


RULE = TaskRule(
    code="diverged",
    severity="note",
    basis="pair",
    summary="A divergence whose margin was not measured, or not reproduced.",
    advice="Measure margins to tell a near-tie from a wrong token; until then the task's scores decide.",
    check=check,
)
