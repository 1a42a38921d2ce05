"""slower-at-depth: worth it for short contexts and not for long ones, where prompts of both lengths were decoded."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.speeds import held_up, ratios, surely_below
from gate.types import Finding

MIN_PROMPTS = 3
"""Prompts of about one length below which their speed is not read."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if evidence.spec.arm.concurrency > 1:
        return  # a batch has prompts of all lengths, and one speed
    lengths = {a.prompt: a.prompt_tokens for a in evidence.spec.answers}
    found = ratios(evidence)
    shortest = min((lengths[p] for p in found if lengths.get(p, 0) > 0), default=0)
    if not shortest:
        return
    spread = math.log(max(policy.thresholds.depth_spread, 1.01))
    levels: defaultdict[int, list[str]] = defaultdict(list)
    for prompt in found:
        if lengths[prompt] > 0:
            levels[int(math.log(lengths[prompt] / shortest) / spread)].append(prompt)
    read = [
        (max(lengths[p] for p in prompts), [found[p] for p in prompts])
        for _, prompts in sorted(levels.items())
        if len(prompts) >= MIN_PROMPTS
    ]
    least, confidence = policy.thresholds.min_speed_ratio, policy.thresholds.confidence
    good = 0
    while good < len(read) and not surely_below(read[good][1], least, confidence):
        good += 1
    if 0 < good < len(read):
        before, (depth, values) = median(read[good - 1][1]), read[good]
        ratio = median(values)
        yield finding(
            evidence,
            RULE.code,
            "limit",
            f"decodes at {ratio:.2f} times plain's rate with prompts of up to {depth} tokens; "
            f"up to {read[good - 1][0]} tokens it {held_up(before, least)} ({before:.2f})",
            limit={"depth": read[good - 1][0]},
            by_depth=[[depth, median(values)] for depth, values in read],
        )


RULE = TaskRule(
    code="slower-at-depth",
    severity="limit",
    basis="pair",
    summary="Faster than plain on short contexts and slower on long ones, beyond chance.",
    advice="Switch the head off beyond the context length named.",
    check=check,
)
