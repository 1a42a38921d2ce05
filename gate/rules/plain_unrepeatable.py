"""plain-unrepeatable: plain differs from itself, so a difference from it says nothing of speculation."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted_facts, place_of
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = evidence.plain
    if plain.arm.scheduler.get("enable_prefix_caching"):
        suspect = "prefix caching is on: turn it off"
    else:
        suspect = "suspect state kept between requests or kernels that don't repeat themselves"
    for comparison in (*plain.repeats, *(c for a, c in plain.probe_repeats if a.probe in ("state", "start"))):
        if comparison.identical or not comparison.same_context:
            continue
        divergence = comparison.divergence
        at = ""
        facts = {}
        if divergence is not None:
            facts = parted_facts(divergence)
            at = f", first at {place_of(divergence)}"
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"the target alone differs from itself in repeat {comparison.repeat}{at}; "
            f"no difference can be put down to speculation ({suspect})",
            arm=plain.arm.name,
            prompt=comparison.prompt,
            repeat=comparison.repeat,
            **facts,
        )


RULE = TaskRule(
    code="plain-unrepeatable",
    severity="unreadable",
    basis="arm",
    summary="Plain decoding differs from itself on the same prompt.",
    advice="Make plain decoding repeatable first: no prefix caching, a fresh process, or another device or precision.",
    check=check,
)
