"""case-swapped: a case lost on one prompt and as many or more gained elsewhere; no worse in all, and shown as such."""

from __future__ import annotations

from collections.abc import Iterator

from gate.cases import pair_cases
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.rules.case_lost import cause, outcomes
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    pairs = pair_cases(evidence)
    if pairs.passed_arm < pairs.passed_plain:
        return
    for lost in pairs.lost:
        why, place = cause(evidence, lost.prompt, policy)
        yield finding(
            evidence,
            RULE.code,
            "note",
            f"case {lost.case} is lost, {outcomes(lost)}, but {len(pairs.gained)} others are gained "
            f"({pairs.passed_arm} of {pairs.pairs} pass in all, {pairs.passed_plain} with plain){why}",
            prompt=lost.prompt,
            case=lost.case,
            gained=[[g.prompt, g.case] for g in pairs.gained[:20]],
            **place,
        )


RULE = TaskRule(
    code="case-swapped",
    severity="note",
    basis="cases",
    summary="Cases were lost and as many or more gained.",
    advice="Look at the cases: the score is no worse, but it is not the same work that is done.",
    check=check,
)
