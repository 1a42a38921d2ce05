"""finish-mismatch: the same tokens as plain's and another reason for ending, so a client takes a whole answer for a cut
one, or a cut one for whole."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for prompt, comparison in evidence.spec.comparisons.items():
        divergence = comparison.divergence
        same_tokens = comparison.same_context and (
            divergence is None or (divergence.tokens_known and divergence.token_index is None)
        )
        reasons = (comparison.base_finish, comparison.finish)
        if same_tokens and "unknown" not in reasons and reasons[0] != reasons[1]:
            yield finding(
                evidence,
                RULE.code,
                "block",
                f"delivers plain's tokens and reports finish={comparison.finish} where plain reports "
                f"finish={comparison.base_finish}",
                prompt=prompt,
                finish=comparison.finish,
                plain_finish=comparison.base_finish,
            )


RULE = TaskRule(
    code="finish-mismatch",
    severity="block",
    basis="pair",
    summary="The same tokens as plain's, with another finish reason.",
    advice="Do not serve this runtime with speculation where clients rely on the finish reason.",
    check=check,
)
