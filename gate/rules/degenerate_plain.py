"""degenerate-plain: plain itself is empty, loops or says one token for ever; an arm equal to it proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gate.degenerate import degenerate
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    found = [(a, why) for a in evidence.plain.first() if (why := degenerate(a, policy)) is not None]
    most = policy.thresholds.max_degenerate_plain_share * len(evidence.prompts)
    severity: Severity = "unreadable" if len(found) > most else "note"
    for answer, why in found:
        yield finding(
            evidence,
            RULE.code,
            severity,
            f"plain's own answer {why}; {len(found)} of {len(evidence.prompts)} prompts are like this",
            arm=evidence.plain.arm.name,
            prompt=answer.prompt,
            tokens=answer.tokens,
            repeated_4gram_share=answer.repeated,
        )


RULE = TaskRule(
    code="degenerate-plain",
    severity="unreadable",
    basis="arm",
    summary="Plain's own answers are empty, loop, or say one token for ever.",
    advice="Look at the target alone first: its export, precision hints (f16 gives NaN on some CPUs), chat template.",
    check=check,
)
