"""unstable-start: built afresh, the same arm sometimes accepts nothing, though its text is unchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gate.acceptance import acceptance
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding

CHANCE = 1e-3
"""A start counts as dead where so many rejections in a row were less likely than this at the usual acceptance."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    starts: defaultdict[int, list[AnswerFacts]] = defaultdict(list)
    for answer in evidence.spec.probes:
        if answer.probe == "start" and answer.failure is None:
            starts[answer.session].append(answer)
    usual = acceptance(evidence.spec.first()).rate
    if usual is None or usual < policy.thresholds.dead_acceptance:
        return
    for session, answers in starts.items():
        total = acceptance(answers)
        if (
            total.drafted is not None
            and total.accepted == 0
            and (1 - min(usual, 1)) ** total.drafted < CHANCE
        ):
            yield finding(
                evidence,
                RULE.code,
                "block",
                f"start {session} of {len(starts)} accepted none of {total.drafted} drafts, "
                f"where {100 * usual:.1f} % are usual",
                session=session,
                drafted=total.drafted,
                usual=usual,
            )


RULE = TaskRule(
    code="unstable-start",
    severity="block",
    basis="arm",
    summary="A fresh start of the same arm accepts no draft.",
    advice="Check acceptance after each start of the server, or try another runtime version.",
    check=check,
)
