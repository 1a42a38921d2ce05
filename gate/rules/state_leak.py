"""state-leak: the first prompt, asked again after others or in a new session, is answered differently."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted_facts, place_of
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for answer, comparison in evidence.spec.probe_repeats:
        if answer.probe != "state" or comparison.identical or not comparison.same_context:
            continue
        divergence = comparison.divergence
        at = ""
        facts = {}
        if divergence is not None:
            facts = parted_facts(divergence)
            at = f" from {place_of(divergence)} on"
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"asked again as number {answer.order} of session {answer.session} the answer is another{at}: "
            "something of other requests is left behind",
            prompt=comparison.prompt,
            session=answer.session,
            order=answer.order,
            **facts,
        )


RULE = TaskRule(
    code="state-leak",
    severity="block",
    basis="pair",
    summary="An answer depends on the requests before it.",
    advice="Turn prefix caching off, or restart between requests, and report it to the runtime.",
    check=check,
)
