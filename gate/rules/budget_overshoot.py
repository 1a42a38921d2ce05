"""budget-overshoot: more tokens than were asked for, as when a step of several tokens runs past the budget."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    answers = evidence.spec.by_prompt()
    for prompt, comparison in evidence.spec.comparisons.items():
        own = evidence.plain.comparisons.get(prompt)
        over = comparison.over_budget
        if over > (own.over_budget if own else 0):
            answer = answers[prompt]
            yield finding(
                evidence,
                RULE.code,
                "block",
                f"delivers {answer.tokens} tokens where {answer.max_new_tokens} were allowed ({over} too many)",
                prompt=prompt,
                over_budget=over,
                tokens=answer.tokens,
                max_new_tokens=answer.max_new_tokens,
            )


RULE = TaskRule(
    code="budget-overshoot",
    severity="block",
    basis="arm",
    summary="More tokens were delivered than allowed.",
    advice="Do not serve this runtime with speculation where clients rely on the token limit.",
    check=check,
)
