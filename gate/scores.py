"""Scores of a run, paired and tested: each task and arm against plain and against its control, corrected together.

The tests that can decide are one family: non-inferiority and loss wherever the policy asks for `non_inferior`, and loss
against the control arm everywhere. More tasks, heads and K make each of them stricter (Holm).
"""

from __future__ import annotations

import msgspec

from evals.power import prompts_to_settle
from evals.statistics import PairedScore, compare_scores, holm, judge, pairs_of
from gate.cases import judged
from gate.evidence import ArmEvidence, Evidence, RunEvidence, Scored
from gate.policy import Policy
from gate.yardstick import void


def with_scores(run: RunEvidence, policy: Policy) -> RunEvidence:
    """The run with each `Evidence.scored` filled in."""
    thresholds = policy.thresholds
    against_plain = {i: _score(item, item.plain, policy) for i, item in enumerate(run.evidence)}
    controls = {i: sound_control(item, policy) for i, item in enumerate(run.evidence)}
    against_control = {
        i: score
        for i, item in enumerate(run.evidence)
        if (control := controls[i]) and (score := _score(item, control, policy))
    }
    deciding = {
        i: score
        for i, score in against_plain.items()
        if score and policy.requirement(run.evidence[i].task) == "non_inferior"
    }
    judgements = judge(deciding, thresholds.confidence, thresholds.worse_confidence)
    worse = dict(zip(against_control, holm([s.worse_p for s in against_control.values()]), strict=True))
    filled = []
    for i, item in enumerate(run.evidence):
        judgement, control = judgements.get(i), controls[i]
        needed = None
        if judgement is not None and judgement.outcome == "inconclusive":
            needed = prompts_to_settle(deciding[i], thresholds.confidence, thresholds.worse_confidence)
        scored = Scored(
            against_plain=against_plain[i],
            against_control=against_control.get(i),
            control=control.arm.name if control else None,
            judgement=judgement,
            control_worse_p=worse.get(i),
            prompts_needed=needed,
        )
        filled.append(msgspec.structs.replace(item, scored=scored))
    return msgspec.structs.replace(run, evidence=tuple(filled))


def sound_control(item: Evidence, policy: Policy) -> ArmEvidence | None:
    """The first control arm that can serve as a yardstick."""
    return next((control for control in item.controls if void(control, policy) is None), None)


def _score(item: Evidence, base: ArmEvidence, policy: Policy) -> PairedScore | None:
    """The arm's score against `base`'s, over the prompts that were judged whole in both."""
    prompts = [
        p
        for p in item.prompts
        if judged(base.grades.get(p), item.cases_of(p)) and judged(item.spec.grades.get(p), item.cases_of(p))
    ]
    pairs = pairs_of((base.grades[p] for p in prompts), (item.spec.grades[p] for p in prompts))
    thresholds = policy.thresholds
    return compare_scores(pairs, thresholds.non_inferiority_margin, thresholds.confidence)
