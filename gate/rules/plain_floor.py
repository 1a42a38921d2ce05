"""plain-floor: plain passes next to nothing of the task, so "no worse than plain" says nothing.

Only what plain passes can be lost. A low score is no fault where many prompts are passed all the same (a hard task with
many prompts shows a loss well); where both are few, a head that spoils answers would hardly be seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from evals.power import prompts_to_see
from gate.cases import judged, pair_cases
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    pairs = pair_cases(evidence)
    if not pairs.pairs:
        return
    passing = sum(_passes_any(evidence, prompt) for prompt in evidence.prompts)
    least, enough = policy.thresholds.min_plain_score, prompts_to_see()
    if pairs.passed_plain and (pairs.passed_plain >= least * pairs.pairs or passing >= enough):
        return
    said = f"plain passes {pairs.passed_plain} of {pairs.pairs} cases, so "
    if not pairs.passed_plain:
        said += "nothing could be lost and the comparison has no power"
    else:
        said += (
            f"only {passing} of {len(evidence.prompts)} prompts have anything to lose; a loss shows from a score of "
            f"{least:.0%} on, or from {enough} such prompts"
        )
    yield finding(
        evidence,
        RULE.code,
        "unreadable",
        said,
        arm=evidence.plain.arm.name,
        judged=pairs.pairs,
        passed_plain=pairs.passed_plain,
        passed=pairs.passed_arm,
        prompts=passing,
    )


def _passes_any(evidence: Evidence, prompt: str) -> bool:
    plain, arm = evidence.plain.grades.get(prompt), evidence.spec.grades.get(prompt)
    cases = evidence.cases_of(prompt)
    return judged(plain, cases) and judged(arm, cases) and plain is not None and plain.passed > 0


RULE = TaskRule(
    code="plain-floor",
    severity="unreadable",
    basis="cases",
    summary="Plain passes next to no case of the task.",
    advice="Give the gate a task that this target can do, or more tokens to do it in.",
    check=check,
)
