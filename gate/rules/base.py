"""What a rule is, and the few words that rules share in their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from evals.types import Divergence
from gate.evidence import Evidence, RunEvidence
from gate.policy import Policy
from gate.types import Finding, Severity

Basis = Literal["run", "arm", "pair", "cases"]
"""What a rule's findings rest on: the run as a whole, an arm by itself, the arm beside plain, or graded cases of both.
A finding doesn't count where what it rests on can't be read (`gate.verdict`)."""

Subject = TypeVar("Subject", Evidence, RunEvidence)


class Rule(msgspec.Struct, Generic[Subject], frozen=True):
    """A reason code, and the function that looks for it.

    severity: what its findings are unless the policy says otherwise. summary: what was seen, for the reference.
    advice: what to do about it, one sentence.
    """

    code: str
    severity: Severity
    basis: Basis
    summary: str
    advice: str
    check: Callable[[Subject, Policy], Iterable[Finding]]


TaskRule = Rule[Evidence]
RunRule = Rule[RunEvidence]


def finding(
    evidence: Evidence,
    code: str,
    severity: Severity,
    message: str,
    *,
    arm: str | None = None,
    prompt: str | None = None,
    **facts: Any,
) -> Finding:
    """A finding on this task and, unless `arm` names another, on its speculative arm. The message gets its place."""
    name = arm or evidence.spec.arm.name
    place = f"{evidence.task}/{prompt}" if prompt is not None else evidence.task
    return Finding(
        code=code,
        severity=severity,
        message=f"{place}, {name}: {message}",
        task=evidence.task,
        arm=name,
        prompt=prompt,
        evidence={"k": evidence.spec.arm.k, **facts} if name == evidence.spec.arm.name else facts,
    )


def quote(text: str, limit: int = 40) -> str:
    """A model's text for a message: escaped, on one line, cut at `limit` characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def token(text: str, number: int | None) -> str:
    """A token for a message, by its text; the end of an answer has no token."""
    return "the end of the answer" if number is None else quote(text)


def parted(divergence: Divergence) -> str:
    """Where two answers part, with both tokens."""
    if not divergence.tokens_known:
        return f"parts from plain at byte {divergence.byte_offset}"
    if divergence.token_index is None:
        return f"the texts differ from byte {divergence.byte_offset} on though the tokens don't"
    return (
        f"parts from plain at token {divergence.token_index} "
        f"({token(divergence.other_token_text, divergence.other_token)} where plain has "
        f"{token(divergence.base_token_text, divergence.base_token)})"
    )


def place_of(divergence: Divergence | None) -> str:
    """Where an answer parts from an earlier one of its arm, with both tokens; "" where that isn't known."""
    if divergence is None:
        return ""
    if divergence.token_index is None:
        return f"byte {divergence.byte_offset}"
    return (
        f"token {divergence.token_index} ({token(divergence.base_token_text, divergence.base_token)}, then "
        f"{token(divergence.other_token_text, divergence.other_token)})"
    )


def parted_facts(divergence: Divergence) -> dict[str, Any]:
    """The same for machines."""
    return {
        "token_index": divergence.token_index,
        "byte_offset": divergence.byte_offset,
        "plain_token": divergence.base_token,
        "token": divergence.other_token,
        "plain_token_text": divergence.base_token_text[:80],
        "token_text": divergence.other_token_text[:80],
    }


def percent(part: int, whole: int) -> str:
    """A rate with its counts: 93.9 % (157/163)."""
    return f"{100 * part / whole:.1f} % ({part}/{whole})"
