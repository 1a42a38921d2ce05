"""acceptance-collapse: a head that drafted well and then no more, later in the session or deeper in the context.

What it could do is read from its better windows: once nothing is accepted each token takes a step of K drafts, so dead
windows soon outnumber the good ones before them, and a median would take the collapse for what is usual.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from gate.acceptance import by_depth, in_order, windows
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding

BETTER = 4
"""A fourth of the windows, the better ones, tell what the head could do."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    thresholds = policy.thresholds
    answers = evidence.spec.first()
    for how, pieces in (("in the order of decoding", in_order(answers)), ("by depth", by_depth(answers))):
        found = windows(pieces, thresholds.collapse_window_drafts)
        if len(found) < 2:
            continue
        rates = [accepted / drafted for accepted, drafted in found]
        before = mean(sorted(rates[:-1])[-max(1, len(rates) // BETTER) :])
        if before >= thresholds.dead_acceptance and rates[-1] < thresholds.collapse_share * before:
            yield finding(
                evidence,
                RULE.code,
                "block",
                f"acceptance collapses {how}: {100 * rates[-1]:.1f} % in the last window of "
                f"{found[-1][1]} drafts, {100 * before:.1f} % in the better ones before it",
                order=how,
                windows=[list(window) for window in found[-20:]],
            )


RULE = TaskRule(
    code="acceptance-collapse",
    severity="block",
    basis="arm",
    summary="Acceptance falls to a fraction of what it was, with time or with depth.",
    advice="Serve without the head beyond the place named, or try another runtime version.",
    check=check,
)
