"""acceptance-collapse: a head that drafted well and then no more, later in the session, deeper in the context, or on
some of the prompts (as in a server's slots).

What it could do is read from its better windows: once nothing is accepted each token takes a step of K drafts, so dead
windows soon outnumber the good ones before them, and a median would take the collapse for what is usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from gate.acceptance import MOST, believed, by_depth, dead_below, improbable, in_order, rest_of, windows
from gate.evidence import AnswerFacts, Drafts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, percent
from gate.types import Finding

BETTER = 4
"""A fourth of the windows, the better ones, tell what the head could do."""

Window = tuple[int, int]
"""accepted, drafted"""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    beyond = [a.prompt for a in evidence.spec.first() if (a.drafted or 0) > MOST]
    if beyond:
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"whether acceptance collapses can't be read: the counters say more than {MOST:,} drafts in one answer",
            prompt=beyond[0],
            prompts=beyond[:20],
        )
    answers = believed(evidence.spec.first())
    collapsed = False
    for how, pieces in (("in the order of decoding", in_order(answers)), ("by depth", by_depth(answers))):
        found = _collapse(pieces, evidence.spec.arm.k, policy)
        if found is None:
            continue
        collapsed = True
        *before, (accepted, drafted) = found
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"acceptance collapses {how}: {100 * accepted / drafted:.1f} % in the last window of "
            f"{drafted} drafts, {100 * _better(before):.1f} % in the better ones before it",
            order=how,
            windows=[list(window) for window in found[-20:]],
        )
    if not collapsed:
        yield from _on_prompts(evidence, answers, policy)


def _collapse(pieces: Sequence[Drafts], k: int, policy: Policy) -> list[Window] | None:
    """Windows of which the last one collapsed; it may be short where that can't be chance. None where none did."""
    thresholds = policy.thresholds
    whole = windows(pieces, thresholds.collapse_window_drafts)
    rest = rest_of(pieces, thresholds.collapse_window_drafts)
    for before, last in ((whole, rest), (whole[:-1], whole[-1] if whole else rest)):
        if not before or _better(before) < dead_below(k, thresholds):
            continue
        least = thresholds.collapse_share * _better(before)
        if last is not rest and improbable(rest[1] - rest[0], rest[1], 1 - least):
            continue  # it has recovered since: a head that accepts less would hardly reject so few
        if last[0] < least * last[1] and (last is not rest or improbable(*last, least)):
            return [*before, last]
    return None


def _on_prompts(evidence: Evidence, answers: Sequence[AnswerFacts], policy: Policy) -> Iterator[Finding]:
    """Answers in which all but nothing was accepted, as with a wrong head, where others were drafted well."""
    thresholds = policy.thresholds
    counted = {a.prompt: (a.accepted or 0, a.drafted) for a in answers if a.drafted}
    if not counted or _better(list(counted.values())) < dead_below(evidence.spec.arm.k, thresholds):
        return
    usual = _better(list(counted.values()))
    dead = [
        prompt
        for prompt, (accepted, drafted) in counted.items()
        if accepted < thresholds.control_max_acceptance * drafted
        and improbable(accepted, drafted, thresholds.collapse_share * usual)
    ]
    if dead:
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"acceptance collapses on {len(dead)} of {len(counted)} prompts: {percent(*counted[dead[0]])} here, "
            f"{100 * usual:.1f} % on the better ones",
            prompt=dead[0],
            order="by prompt",
            prompts=dead[:20],
        )


def _better(found: Sequence[Window]) -> float:
    rates = sorted(accepted / drafted for accepted, drafted in found)
    return mean(rates[-max(1, (len(rates) + 1) // BETTER) :])


RULE = TaskRule(
    code="acceptance-collapse",
    severity="block",
    basis="arm",
    summary="Acceptance falls to a fraction of what it was, with time, with depth, or on some prompts.",
    advice="Serve without the head beyond the place named, or try another runtime version.",
    check=check,
)
