"""usage-mismatch: the server's account of tokens contradicts itself, or bills the same text otherwise than plain's."""

from __future__ import annotations

from collections.abc import Iterator

from gate.delivery import STOP_TOKENS
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = evidence.plain.by_prompt()
    for answer in evidence.spec.first():
        base, comparison = plain.get(answer.prompt), evidence.spec.comparisons.get(answer.prompt)
        same = comparison is not None and comparison.identical
        what = answer.usage_fault
        if not what and base is not None and answer.failure is None:
            what = _no_bill(base, answer, comparison is not None and comparison.same_context) or (
                _other_bill(base, answer) if same else ""
            )
        if not what:
            continue
        plain_too = bool(base is not None and base.usage_fault and answer.usage_fault)
        severity: Severity = "note" if plain_too else "block"
        yield finding(
            evidence,
            RULE.code,
            severity,
            what + ("; plain's account does so too" if plain_too else ""),
            prompt=answer.prompt,
            reported_tokens=answer.reported_tokens,
            plain_reported_tokens=base.reported_tokens if base is not None else None,
        )


def _no_bill(base: AnswerFacts, answer: AnswerFacts, same_context: bool) -> str:
    """Whether plain's server bills and the other doesn't, or bills another prompt."""
    if not base.server or not answer.server:
        return ""  # in-process and over HTTP
    if base.reported_tokens is not None and answer.reported_tokens is None:
        return "sends no usage though it was asked for, and plain's server does"
    asked = base.prompt_tokens, answer.prompt_tokens
    if same_context and all(asked) and asked[0] != asked[1]:
        return f"bills {asked[1]} tokens for the prompt that plain bills as {asked[0]}"
    return ""


def _other_bill(base: AnswerFacts, answer: AnswerFacts) -> str:
    """Whether plain's own text is billed otherwise than by plain; the end-of-sequence token may or may not be."""
    if base.reported_tokens is None or answer.reported_tokens is None or base.ids_from == "engine":
        return ""
    if abs(base.reported_tokens - answer.reported_tokens) <= STOP_TOKENS:
        return ""
    return f"bills {answer.reported_tokens} tokens for the text that plain bills as {base.reported_tokens}"


RULE = TaskRule(
    code="usage-mismatch",
    severity="block",
    basis="arm",
    summary="The server's account of tokens can't be right, or lacks where plain's server sends one.",
    advice="Do not bill by this server's usage with the head on; report it to the server's makers.",
    check=check,
)
