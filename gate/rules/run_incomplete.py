"""run-incomplete: the run was cut short, by the budget, by a key press, by a full disk."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import RunEvidence
from gate.policy import Policy
from gate.rules.base import RunRule
from gate.types import Finding


def check(run: RunEvidence, policy: Policy) -> Iterator[Finding]:
    if run.end is not None and run.end.complete:
        return
    reason = run.end.reason if run.end else "it has no end record; it may still be going on"
    yield Finding(
        RULE.code, "unreadable", f"the run did not come to its end: {reason}", evidence={"reason": reason}
    )


RULE = RunRule(
    code="run-incomplete",
    severity="unreadable",
    basis="run",
    summary="The run ended before every planned answer was decoded.",
    advice="Run the same command again with the same --out to go on where it stopped, or give it a larger --budget.",
    check=check,
)
