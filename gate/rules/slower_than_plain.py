"""slower-than-plain: the head costs more than it gains, which is apart from whether it may be served."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from evals.speed import median_interval
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.speeds import samples, surely_below
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    found = samples(evidence)
    least = policy.thresholds.min_speed_ratio
    if not found or not surely_below(list(found.values()), least, policy.thresholds.confidence):
        return
    ratio = median(found.values())
    bounds = median_interval(list(found.values()), policy.thresholds.confidence)
    what = "prompts" if evidence.spec.arm.concurrency == 1 else "batches"
    within = f", {bounds[0]:.2f} to {bounds[1]:.2f}" if bounds else ""
    yield finding(
        evidence,
        RULE.code,
        "note",
        f"decodes at {ratio:.2f} times plain's rate (median over {len(found)} {what}{within}); "
        f"worth it from {least:.2f} on",
        speed_ratio=ratio,
        interval=list(bounds) if bounds else None,
        min_speed_ratio=least,
    )


RULE = TaskRule(
    code="slower-than-plain",
    severity="note",
    basis="pair",
    summary="Decode throughput is below plain's (or below what the policy calls worth it).",
    advice="Serve without this head where speed is what it is for; a smaller K or an int4 head may pay.",
    check=check,
)
