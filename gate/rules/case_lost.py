"""case-lost: over the task's prompts fewer cases pass than with plain; each one that only plain passed is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gate.cases import Changed, pair_cases
from gate.evidence import Evidence
from gate.margins import describe, facts, read_margin
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted, parted_facts, quote
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if evidence.judge != "constraints":
        yield from lost_cases(evidence, policy, RULE.code, "case")


def lost_cases(evidence: Evidence, policy: Policy, code: str, what: str) -> Iterator[Finding]:
    """Findings for each case lost where fewer pass in all. They block by `no_worse` and `identical`; where the policy
    asks for non-inferiority the statistics decide, and they are notes."""
    pairs = pair_cases(evidence)
    if pairs.passed_arm >= pairs.passed_plain:
        return
    severity: Severity = "note" if policy.requirement(evidence.task) == "non_inferior" else "block"
    for lost in pairs.lost:
        why, place = cause(evidence, lost.prompt, policy)
        yield finding(
            evidence,
            code,
            severity,
            f"{what} {lost.case} is lost: {outcomes(lost)} "
            f"({pairs.passed_arm} of {pairs.pairs} pass in all, {pairs.passed_plain} with plain){why}",
            prompt=lost.prompt,
            case=lost.case,
            plain_outcome=lost.plain.outcome,
            outcome=lost.arm.outcome,
            passed=pairs.passed_arm,
            passed_plain=pairs.passed_plain,
            judged=pairs.pairs,
            **place,
        )


def outcomes(changed: Changed) -> str:
    """Both outcomes of a case, with what was observed and expected where that is known."""
    text = f"plain {changed.plain.outcome}, the arm {changed.arm.outcome}"
    if changed.arm.outcome != "pass" and changed.arm.observed:
        text += f" (observed {quote(changed.arm.observed, 60)}"
        text += f", expected {quote(changed.arm.expected, 60)})" if changed.arm.expected else ")"
    return text


def cause(evidence: Evidence, prompt: str, policy: Policy) -> tuple[str, dict[str, Any]]:
    """Where the arm's answer leaves plain's, and whether by a near-tie: for a message, and for machines."""
    comparison = evidence.spec.comparisons.get(prompt)
    divergence = comparison.divergence if comparison is not None else None
    if divergence is None:
        return "", {}
    margin = evidence.margins.get(prompt)
    reading = read_margin(margin, policy, divergence)
    text, found = f"; the answer {parted(divergence)}", parted_facts(divergence)
    if margin is None or reading is None:
        return f"{text}, its margin isn't known", {**found, "nearness": None}
    said = {"near": "a near-tie", "wide": "not a near-tie"}.get(reading.nearness, "its margin says nothing")
    return (
        f"{text}, {said}: {describe(margin, reading)}",
        {**found, **facts(margin, reading), "nearness": reading.nearness},
    )


RULE = TaskRule(
    code="case-lost",
    severity="block",
    basis="cases",
    summary="Fewer cases of an executed task pass than with plain.",
    advice="Serve this task without the head, or try other numerics (KV precision, precision hint, K = 1).",
    check=check,
)
