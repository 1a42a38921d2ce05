"""spec-unrepeatable: the arm differs from itself, so what was judged is one draw of several."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted_facts, place_of
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    again = [(f"repeat {c.repeat}", c) for c in evidence.spec.repeats]
    again += [(f"start {a.session}", c) for a, c in evidence.spec.probe_repeats if a.probe == "start"]
    for where, comparison in again:
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
            f"the arm differs from itself in {where}{at}: one answer can't stand for what will be served",
            prompt=comparison.prompt,
            repeat=comparison.repeat,
            **facts,
        )


RULE = TaskRule(
    code="spec-unrepeatable",
    severity="unreadable",
    basis="arm",
    summary="The speculative arm differs from itself on the same prompt.",
    advice="Look for state kept between requests, or for kernels that don't repeat themselves on this device.",
    check=check,
)
