"""finish-mismatch: the same tokens as plain's and another reason for ending, so a client takes a whole answer for a cut
one, or a cut one for whole."""

from __future__ import annotations

from collections.abc import Iterator

from evals.types import Finish
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, quote
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain, arm = evidence.plain.by_prompt(), evidence.spec.by_prompt()
    for prompt, comparison in evidence.spec.comparisons.items():
        divergence = comparison.divergence
        same_tokens = comparison.same_context and (
            divergence is None or (divergence.tokens_known and divergence.token_index is None)
        )
        served = all(answer is not None and answer.server for answer in (plain.get(prompt), arm.get(prompt)))
        base = _named(comparison.base_finish, plain.get(prompt), served)
        finish = _named(comparison.finish, arm.get(prompt), served)
        if same_tokens and "unknown" not in (base, finish) and base != finish:
            yield finding(
                evidence,
                RULE.code,
                "block",
                f"delivers plain's tokens and reports finish={finish} where plain reports finish={base}",
                prompt=prompt,
                finish=finish,
                plain_finish=base,
            )


def _named(finish: Finish, answer: AnswerFacts | None, served: bool) -> str:
    """The reason, in a server's own word where that is none that we know; served: both answers are a server's."""
    own = answer.server.get("finish_reason", "unknown") if answer is not None and served else "unknown"
    return quote(own) if finish == "unknown" and own != finish else finish


RULE = TaskRule(
    code="finish-mismatch",
    severity="block",
    basis="pair",
    summary="The same tokens as plain's, with another finish reason.",
    advice="Do not serve this runtime with speculation where clients rely on the finish reason.",
    check=check,
)
