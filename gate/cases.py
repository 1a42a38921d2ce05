"""Cases of two arms, paired by prompt and name: what was lost, gained, and newly crashes."""

from __future__ import annotations

import msgspec

from evals.types import CaseGrade, Grade
from gate.evidence import Evidence

CRASHES = frozenset({"crash", "timeout", "killed", "output_limit"})
"""Outcomes in which the program didn't come to an end of its own."""


class Changed(msgspec.Struct, frozen=True):
    """A case whose outcome differs between plain and the arm."""

    prompt: str
    case: str
    plain: CaseGrade
    arm: CaseGrade


class CasePairs(msgspec.Struct, frozen=True):
    """Paired cases over a task's prompts.

    pairs: cases judged in both arms. flaky: (prompt, case) whose outcome differs though the answers are byte-identical,
    so that the judging and not the arm differs; they are not among lost and gained. unjudged: prompts whose answers
    lack a grade, a case, or were stopped by trouble of the machine, in either arm.
    """

    pairs: int
    passed_plain: int
    passed_arm: int
    lost: tuple[Changed, ...]
    gained: tuple[Changed, ...]
    new_crashes: tuple[Changed, ...]
    flaky: tuple[tuple[str, str], ...]
    unjudged: tuple[str, ...]


def judged(grade: Grade | None, cases: tuple[str, ...]) -> bool:
    """True where every one of these cases has an outcome that speaks of the model."""
    return grade is not None and not grade.infra and tuple(c.case for c in grade.cases) == cases


def pair_cases(evidence: Evidence) -> CasePairs:
    """Pair the cases of the first repeats."""
    pairs = passed_plain = passed_arm = 0
    lost: list[Changed] = []
    gained: list[Changed] = []
    new_crashes: list[Changed] = []
    flaky: list[tuple[str, str]] = []
    unjudged: list[str] = []
    for prompt in evidence.prompts:
        plain, arm = evidence.plain.grades.get(prompt), evidence.spec.grades.get(prompt)
        cases = evidence.cases_of(prompt)
        if not (judged(plain, cases) and judged(arm, cases)):
            unjudged.append(prompt)
            continue
        assert plain is not None and arm is not None
        comparison = evidence.spec.comparisons.get(prompt)
        same = comparison is not None and comparison.identical
        for before, after in zip(plain.cases, arm.cases, strict=True):
            pairs += 1
            passed_plain += before.outcome == "pass"
            if same and before.outcome != after.outcome:
                flaky.append((prompt, before.case))
                passed_arm += before.outcome == "pass"
                continue
            passed_arm += after.outcome == "pass"
            changed = Changed(prompt=prompt, case=before.case, plain=before, arm=after)
            if before.outcome == "pass" and after.outcome != "pass":
                lost.append(changed)
            elif before.outcome != "pass" and after.outcome == "pass":
                gained.append(changed)
            if after.outcome in CRASHES and before.outcome not in CRASHES:
                new_crashes.append(changed)
    return CasePairs(
        pairs=pairs,
        passed_plain=passed_plain,
        passed_arm=passed_arm,
        lost=tuple(lost),
        gained=tuple(gained),
        new_crashes=tuple(new_crashes),
        flaky=tuple(flaky),
        unjudged=tuple(unjudged),
    )
