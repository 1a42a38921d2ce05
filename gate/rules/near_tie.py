"""near-tie: the arm took a token that lies within width noise of plain's best; honest, and decided on the scores."""

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
        margin = evidence.margins.get(prompt)
        reading = read_margin(margin, policy, divergence)
        if divergence is None or margin is None or reading is None or reading.nearness != "near":
            continue
        yield finding(
            evidence,
            RULE.code,
            "note",
            f"{parted(divergence)}: a near-tie, {describe(margin, reading)}",
            prompt=prompt,
            **parted_facts(divergence),
            **facts(margin, reading),
        )


RULE = TaskRule(
    code="near-tie",
    severity="note",
    basis="pair",
    summary="A divergence within the measured width noise.",
    advice="Nothing to do: it does not block by itself, the task's scores decide.",
    check=check,
)
