"""other-context: a turn of a conversation before which the arm had said something else than plain, so that the two
answers aren't answers to the same and only their scores can be compared."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding
from tasks.types import conversation_of


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    found = [p for p, c in evidence.spec.comparisons.items() if not c.same_context]
    if found:
        talks = {conversation_of(prompt) for prompt in found}
        yield finding(
            evidence,
            RULE.code,
            "note",
            f"{len(found)} later turns of {len(talks)} conversations follow other answers than plain's, so that their "
            "tokens aren't compared and the scores alone decide",
            prompt=found[0],
            turns=found[:100],
        )


RULE = TaskRule(
    code="other-context",
    severity="note",
    basis="pair",
    summary="Later turns of a conversation follow other answers than plain's.",
    advice="Nothing to do: the turn at which they part is judged as any, and the later ones by their scores.",
    check=check,
)
