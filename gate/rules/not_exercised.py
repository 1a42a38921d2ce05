"""not-exercised: nothing was drafted. 0 of 0 is not 0 %, and never a pass."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding

LONG = 16
"""Tokens from which an answer must have been drafted for; shorter ones may end before anything is."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    answers = [a for a in evidence.spec.first() if a.failure is None]
    if not answers:
        return
    total = acceptance(answers)
    if total.drafted == 0:
        message = (
            "nothing was drafted (0/0), so speculation was not exercised; that is not an acceptance of 0 %"
        )
    elif evidence.spec.arm.endpoint is not None:
        return  # speculation-unseen says what isn't known there
    elif total.drafted is None and not any(a.multi_token_steps for a in answers):
        message = (
            "the runtime has no draft counters and no step delivered more than one token: no draft was accepted, and "
            "whether any was made isn't known"
        )
    else:
        yield from _in_part(evidence, answers)
        return
    yield finding(evidence, RULE.code, "unreadable", message, accepted=total.accepted, drafted=total.drafted)


def _in_part(evidence: Evidence, answers: list[AnswerFacts]) -> Iterator[Finding]:
    """Prompts of which nothing was drafted, beside others: they tell nothing of speculation."""
    long = [a for a in answers if a.drafted is not None and a.tokens >= LONG]
    idle = [a for a in long if a.drafted == 0]
    if idle:
        yield finding(
            evidence,
            RULE.code,
            "unreadable" if 2 * len(idle) > len(long) and not _may_be_idle(evidence) else "note",
            f"nothing was drafted (0/0) on {len(idle)} of {len(long)} prompts: there speculation was not exercised",
            prompt=idle[0].prompt,
            prompts=[a.prompt for a in idle[:20]],
        )


def _may_be_idle(evidence: Evidence) -> bool:
    """Prompt lookup drafts nothing where the text doesn't repeat itself; any head drafts at every step."""
    return evidence.spec.arm.method == "prompt_lookup"


RULE = TaskRule(
    code="not-exercised",
    severity="unreadable",
    basis="arm",
    summary="Nothing was drafted, so nothing can be said of speculation (a note where it is on some prompts only).",
    advice="Check that the head is loaded and drafting is on (K of 1 or more, greedy decoding).",
    check=check,
)
