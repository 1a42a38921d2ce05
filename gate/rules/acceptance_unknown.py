"""acceptance-unknown: the runtime has no draft counters, though its steps show that drafts were accepted."""

from __future__ import annotations

from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    answers = evidence.spec.first()
    steps = sum(a.multi_token_steps for a in answers)
    if steps and acceptance(answers).drafted is None:
        yield finding(
            evidence,
            RULE.code,
            "note",
            f"the runtime has no draft counters; {steps} steps delivered more than one token, so drafts were accepted, "
            "at a rate that isn't known",
            multi_token_steps=steps,
        )


RULE = TaskRule(
    code="acceptance-unknown",
    severity="note",
    basis="arm",
    summary="The runtime has no draft counters: acceptance is unknown, which is not zero.",
    advice="Nothing to do; a wrong head can only be told here by its speed.",
    check=check,
)
