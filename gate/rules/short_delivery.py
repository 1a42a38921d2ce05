"""short-delivery: fewer tokens delivered than billed, than the budget that is said to have ended the answer, or plain's
answer without its end and without a stop token."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_high

from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding

STOP_TOKENS = 1
"""Tokens that a sound runtime may bill and not deliver: the end-of-sequence token."""

RESPLIT = 0.05
"""Share of tokens by which a text that is split again may be counted differently."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = evidence.plain.by_prompt()
    unbilled = [_unbilled(a) or 0 for a in plain.values()]
    usual = median_high(unbilled) if unbilled else 0
    for answer in evidence.spec.first():
        if answer.failure is not None:
            continue
        short = _unbilled(answer)
        base, comparison = plain.get(answer.prompt), evidence.spec.comparisons.get(answer.prompt)
        here = (_unbilled(base) or 0) if base else 0
        cut = comparison.cut_tokens if comparison is not None else 0
        if short is not None and short > max(usual, here, STOP_TOKENS, _resplit(answer)):
            message = f"delivers {answer.tokens} tokens and bills {answer.reported_tokens}"
        elif _cut(answer) and not (base and _cut(base)):
            message = (
                f"says that its budget of {answer.max_new_tokens} tokens ended it, "
                f"but {answer.tokens} were delivered"
            )
        elif cut > STOP_TOKENS:
            message = (
                f"delivers the first {answer.tokens} tokens of plain's answer, {cut} fewer, without a stop token, "
                f"and reports finish={answer.finish}"
            )
        else:
            continue
        yield finding(
            evidence,
            RULE.code,
            "block",
            message,
            prompt=answer.prompt,
            tokens=answer.tokens,
            reported_tokens=answer.reported_tokens,
            max_new_tokens=answer.max_new_tokens,
            finish=answer.finish,
        )


def _unbilled(answer: AnswerFacts) -> int | None:
    """Tokens billed beyond those delivered."""
    return (
        None
        if answer.reported_tokens is None or answer.ids_from is None
        else answer.reported_tokens - answer.tokens
    )


def _resplit(answer: AnswerFacts) -> float:
    """Tokens that a text may have lost by being split again, where only that tells how many were delivered."""
    return RESPLIT * answer.tokens + 2 if answer.ids_from == "tokenizer" else 0


def _cut(answer: AnswerFacts) -> bool:
    return answer.finish == "length" and answer.tokens < answer.max_new_tokens


RULE = TaskRule(
    code="short-delivery",
    severity="block",
    basis="arm",
    summary="Fewer tokens were delivered than the runtime bills or says, or plain's answer without its end.",
    advice="Do not serve this runtime with speculation: clients lose text.",
    check=check,
)
