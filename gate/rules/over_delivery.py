"""over-delivery: more text than the server bills, as when a part of the stream comes twice."""

from __future__ import annotations

from collections.abc import Iterator

from gate.delivery import another_tokenizer, slack, unbilled
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = evidence.plain.by_prompt()
    counts = another_tokenizer(evidence.plain) is None
    usual = max((-(unbilled(a) or 0) for a in plain.values()), default=0)
    for answer in evidence.spec.first():
        base, comparison = plain.get(answer.prompt), evidence.spec.comparisons.get(answer.prompt)
        over = _pieces_over(answer)
        split = -(unbilled(answer) or 0)
        if counts and answer.ids_from == "tokenizer" and split > max(usual, 0) + slack(answer):
            over = max(over, split)
        if (
            not over
            or (base is not None and _pieces_over(base))
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


def _pieces_over(answer: AnswerFacts) -> int:
    """Pieces of the stream beyond the tokens billed; a piece is a token or more."""
    if answer.failure is not None or answer.reported_tokens is None:
        return 0
    return max(0, (answer.pieces or 0) - answer.reported_tokens)


RULE = TaskRule(
    code="over-delivery",
    severity="block",
    basis="arm",
    summary="A served reply delivers more tokens than the server bills.",
    advice="Do not serve this head to clients that stream: they get text twice, or text that nobody counted.",
    check=check,
)
