"""slower-than-plain: the head costs more than it gains, which is apart from whether it may be served."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.speeds import ratios, speed_ratio
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    ratio = speed_ratio(evidence)
    least = policy.thresholds.min_speed_ratio
    if ratio is not None and ratio < least:
        yield finding(
            evidence,
            RULE.code,
            "note",
            f"decodes at {ratio:.2f} times plain's rate (median over {len(ratios(evidence))} prompts); "
            f"worth it from {least:.2f} on",
            speed_ratio=ratio,
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
