"""case-not-judged: an answer is there and a case of it has no outcome, or one that the machine's trouble decided; or
most prompts have no answer to judge, whatever was waived."""

from __future__ import annotations

from collections.abc import Iterator

from evals.types import Grade
from gate.cases import judged
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, quote
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for arm in (evidence.plain, evidence.spec):
        answered = [a.prompt for a in arm.first() if a.failure is None]
        missing = [p for p in answered if not judged(arm.grades.get(p), evidence.cases_of(p))]
        if missing:
            yield finding(
                evidence,
                RULE.code,
                "unreadable",
                f"{len(missing)} of {len(answered)} answers were not judged: "
                f"{_why(arm.grades.get(missing[0]), evidence.cases_of(missing[0]))}",
                arm=arm.arm.name,
                prompt=missing[0],
                unjudged=len(missing),
                answers=len(answered),
            )
        if 0 < 2 * len(answered) < len(evidence.prompts):
            yield finding(
                evidence,
                RULE.code,
                "unreadable",
                f"only {len(answered)} of {len(evidence.prompts)} prompts have an answer to judge",
                arm=arm.arm.name,
                answers=len(answered),
            )


def _why(grade: Grade | None, cases: tuple[str, ...]) -> str:
    if grade is None:
        return "no grade is on record"
    for case in grade.cases:
        if case.outcome == "infra":
            said = case.observed or grade.reason
            return f"the machine's trouble decided case {case.case}" + (
                f" ({quote(said, 160)})" if said else ""
            )
    return f"the grade has {len(grade.cases)} of {len(cases)} cases"


RULE = TaskRule(
    code="case-not-judged",
    severity="unreadable",
    basis="arm",
    summary="An answer has no grade, lacks a case, or a case was decided by trouble of the machine.",
    advice="Mend what the finding names and judge again with `gate grade` (no decoding is needed).",
    check=check,
)
