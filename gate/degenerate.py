"""Degenerate answers: empty, one token for ever, or a loop until the budget ended it."""

from __future__ import annotations

from gate.evidence import AnswerFacts
from gate.policy import Policy


def degenerate(answer: AnswerFacts, policy: Policy) -> str | None:
    """What is wrong with the answer, or None. A failed answer isn't degenerate: it isn't there."""
    thresholds = policy.thresholds
    if answer.failure is not None:
        return None
    if answer.one_token:
        return f"says the same token {answer.tokens} times (logits that are not numbers look so)"
    if answer.empty:
        return "is empty"
    if answer.tokens < thresholds.degenerate_min_tokens or answer.finish == "stop":
        return None
    if answer.loops:
        return f"runs in a loop until the end of its {answer.tokens} tokens"
    if answer.repeated >= thresholds.degenerate_repeated_share:
        return f"repeats itself: {answer.repeated:.0%} of its 4-grams occurred before"
    return None
