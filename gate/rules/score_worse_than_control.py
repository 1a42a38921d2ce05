"""score-worse-than-control: fewer cases pass than with a head whose drafts are all thrown away.

The control arm verifies at the same width and accepts nothing, so what it loses against plain, width noise loses. Where
the arm loses and the control doesn't, the loss is the head's doing.
"""

from __future__ import annotations

from collections.abc import Iterator

from gate.cases import judged, pair_cases
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.rules.control_void import void
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    pairs = pair_cases(evidence)
    if pairs.passed_arm >= pairs.passed_plain:
        return
    for control in evidence.controls:
        if void(control, policy) is not None:
            continue
        prompts = [
            p
            for p in evidence.prompts
            if all(
                judged(arm.grades.get(p), evidence.cases) for arm in (evidence.plain, evidence.spec, control)
            )
        ]
        score = sum(control.grades[p].passed for p in prompts)
        own = sum(evidence.spec.grades[p].passed for p in prompts)
        plain = sum(evidence.plain.grades[p].passed for p in prompts)
        if own < score and own < plain:
            yield finding(
                evidence,
                RULE.code,
                "note",
                f"{own} cases pass, {score} with the control head and {plain} with plain: "
                "the verify width alone does not lose them",
                passed=own,
                passed_control=score,
                passed_plain=plain,
                control=control.arm.name,
            )


RULE = TaskRule(
    code="score-worse-than-control",
    severity="note",
    basis="cases",
    summary="The arm's score is below both plain's and the control arm's: the loss is the head's doing.",
    advice="Look at the head itself (its quantisation, its KV precision) rather than at the verify width.",
    check=check,
)
