"""counter-fault: the runtime's counters contradict themselves, so no acceptance can be read off them."""

from __future__ import annotations

from collections.abc import Iterator

from evals.arms import MAX_K
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for answer in evidence.spec.first():
        wrong = _wrong(answer, evidence.spec.arm.k)
        if wrong is not None:
            yield finding(
                evidence,
                RULE.code,
                "unreadable",
                f"the runtime's draft counters can't be right: {wrong}",
                prompt=answer.prompt,
                accepted=answer.accepted,
                drafted=answer.drafted,
                tokens=answer.tokens,
            )


def _wrong(answer: AnswerFacts, k: int) -> str | None:
    if answer.accepted is None or answer.drafted is None or answer.failure is not None:
        return None
    if answer.accepted < 0 or answer.drafted < 0:
        return f"negative ({answer.accepted}/{answer.drafted})"
    if answer.accepted > answer.drafted:
        return f"{answer.accepted} accepted of {answer.drafted} drafted"
    spare = (
        k or MAX_K
    )  # the last step may accept tokens that the budget or the stop cuts off; K may not be known
    # a text that is split again may have other numbers of tokens, all the more by another model's tokenizer
    tokens = max(answer.tokens, (answer.reported_tokens or 0) if answer.ids_from == "tokenizer" else 0)
    if tokens and answer.accepted > tokens + spare:
        return f"{answer.accepted} drafts accepted, but the answer has {tokens} tokens"
    return None


RULE = TaskRule(
    code="counter-fault",
    severity="unreadable",
    basis="arm",
    summary="More drafts accepted than were made, or than the answer has tokens.",
    advice="Use a runtime whose counters can be trusted; report this one.",
    check=check,
)
