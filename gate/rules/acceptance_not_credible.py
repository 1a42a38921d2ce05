"""acceptance-not-credible: nearly every draft accepted in a text that repeats itself; any head can do that."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, percent
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    thresholds = policy.thresholds
    answers = [a for a in evidence.spec.first() if a.failure is None]
    total = acceptance(answers)
    tokens = sum(a.tokens for a in answers)
    if total.rate is None or total.accepted is None or total.drafted is None or not tokens:
        return
    repeated = sum(a.repeated * a.tokens for a in answers) / tokens
    if (
        total.drafted >= thresholds.min_drafts
        and thresholds.too_good_acceptance <= total.rate <= 1
        and repeated >= thresholds.too_good_repeated_share
    ):
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"acceptance {percent(total.accepted, total.drafted)} in a text of which {repeated:.0%} of the 4-grams "
            "are repetition: it says nothing of the head",
            accepted=total.accepted,
            drafted=total.drafted,
            repeated_4gram_share=repeated,
        )


RULE = TaskRule(
    code="acceptance-not-credible",
    severity="unreadable",
    basis="arm",
    summary="Acceptance is near 100 % and the text repeats itself.",
    advice="Look at the answers; give the gate a task whose right answers do not repeat themselves.",
    check=check,
)
