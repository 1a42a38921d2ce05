"""Delivered tokens held against billed ones, where only a tokenizer that reads the text again can count them.

Such a count is near and not exact: a text may have been said with other tokens than it splits into. And the tokenizer
is what a user names with --tokenizer: plain's own answers tell whether it is the server's.
"""

from __future__ import annotations

from gate.evidence import AnswerFacts, ArmEvidence

STOP_TOKENS = 1
"""Tokens that a sound runtime may bill and not deliver: the end-of-sequence token."""

RESPLIT = 0.05
"""Share of tokens by which a text that is split again may be counted differently."""

SPARE = 2
"""And tokens, whatever the text's length."""


def slack(answer: AnswerFacts) -> float:
    """Tokens by which the count of those delivered may be off; 0 where the ids themselves are known."""
    return RESPLIT * answer.tokens + SPARE if answer.ids_from == "tokenizer" else 0


def unbilled(answer: AnswerFacts) -> int | None:
    """Tokens billed beyond those delivered (negative: delivered beyond those billed); None where either isn't known."""
    known = answer.failure is None and answer.reported_tokens is not None and answer.ids_from is not None
    return answer.reported_tokens - answer.tokens if known else None  # type: ignore[operator]


def another_tokenizer(plain: ArmEvidence) -> tuple[int, int] | None:
    """Tokens that plain's texts split into and tokens that are billed for them, where these are so far apart in all
    that the tokenizer can't be the server's; None where they agree, or nothing was split again.

    Half the share that one answer may be off by: over many, differences of single answers come to little.
    """
    answers = [a for a in plain.first() if a.ids_from == "tokenizer" and unbilled(a) is not None]
    split = sum(a.tokens for a in answers)
    billed = sum(a.reported_tokens or 0 for a in answers)
    spare = RESPLIT / 2 * split + len(answers)
    if split - spare <= billed <= split + STOP_TOKENS * len(answers) + spare:
        return None
    return split, billed
