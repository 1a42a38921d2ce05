"""over-delivery: more text than the server bills, as when a part of the stream comes twice."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.rules.short_delivery import RESPLIT
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = evidence.plain.by_prompt()
    for answer in evidence.spec.first():
        base, comparison = plain.get(answer.prompt), evidence.spec.comparisons.get(answer.prompt)
        over = _over(answer)
        if (
            not over
            or (base is not None and _over(base))
            or (comparison is not None and comparison.identical)
        ):
            continue
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"delivers at least {over} tokens more than the {answer.reported_tokens} that it bills",
            prompt=answer.prompt,
            over=over,
            reported_tokens=answer.reported_tokens,
            pieces=answer.pieces,
        )


def _over(answer: AnswerFacts) -> int:
    """Tokens delivered beyond those billed; a piece of a stream is a token or more."""
    if answer.failure is not None or answer.reported_tokens is None:
        return 0
    over = max(0, (answer.pieces or 0) - answer.reported_tokens)
    if answer.ids_from == "tokenizer" and answer.tokens > answer.reported_tokens * (1 + RESPLIT) + 2:
        over = max(over, answer.tokens - answer.reported_tokens)
    return over


RULE = TaskRule(
    code="over-delivery",
    severity="block",
    basis="arm",
    summary="A served reply delivers more tokens than the server bills.",
    advice="Do not serve this head to clients that stream: they get text twice, or text that nobody counted.",
    check=check,
)
