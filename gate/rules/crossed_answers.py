"""crossed-answers: an answer that is another prompt's of its batch, in whole or from some place on: slots mixed up."""

from __future__ import annotations

from collections.abc import Iterator

from evals.crossed import Crossed
from gate.evidence import Evidence
from gate.margins import read_margin
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for arm in (evidence.plain, evidence.spec):
        severity: Severity = "unreadable" if arm is evidence.plain else "block"
        for answer, crossed in arm.crossed:
            reading = None
            if arm is evidence.spec:
                comparison = arm.comparisons.get(answer.prompt)
                parting = comparison.divergence if comparison is not None else None
                reading = read_margin(evidence.margins.get(answer.prompt), policy, parting)
            if crossed.how in ("tail", "piece") and reading is not None and reading.nearness == "near":
                continue  # it left at a near-tie: two honest texts that have a long piece in common
            yield finding(
                evidence,
                RULE.code,
                severity,
                f"repeat {answer.repeat}, batch {answer.batch}: {_what(crossed)}",
                arm=arm.arm.name,
                prompt=answer.prompt,
                repeat=answer.repeat,
                batch=answer.batch,
                other_task=crossed.task,
                other_prompt=crossed.prompt,
                how=crossed.how,
                at=crossed.at,
                characters=crossed.characters,
            )


def _what(crossed: Crossed) -> str:
    whose = f"the answer to {crossed.task}/{crossed.prompt}, which was in flight with it"
    if crossed.how == "whole":
        return f"it is {whose}"
    if crossed.how == "tail":
        return f"from character {crossed.at} on it is {whose} ({crossed.characters} characters)"
    if crossed.how == "piece":
        return f"at character {crossed.at} it has {crossed.characters} characters of {whose}, and then goes on as due"
    if crossed.how == "lost":
        return f"at character {crossed.at} it lacks {crossed.characters} characters, which stand in {whose}"
    return f"at character {crossed.at} it has {crossed.characters} characters that are missing in {whose}"


RULE = TaskRule(
    code="crossed-answers",
    severity="block",
    basis="arm",
    summary="An answer is another prompt's that was in flight with it, goes over to it, or swapped a chunk with it.",
    advice="Do not serve this with more than one request in flight: its slots are mixed up.",
    check=check,
)
