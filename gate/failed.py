"""Replies that never came whole, by kind: what the rules of served arms share."""

from __future__ import annotations

from collections.abc import Iterator

from evals.types import FailureKind
from gate.evidence import Evidence
from gate.rules.base import finding, quote
from gate.types import Finding, Severity


def failed(evidence: Evidence, code: str, kind: FailureKind, what: str, *, infra: bool) -> Iterator[Finding]:
    """A finding for each arm that has failures of a kind. Those of the speculative arm block, unless they are infra (of
    the machine or the network, not of the model) or plain has them on the same prompt; all others leave it unread."""
    of_plain = {
        a.prompt
        for a in (*evidence.plain.answers, *evidence.plain.probes)
        if a.failure and a.failure.kind == kind
    }
    for arm in (evidence.plain, evidence.spec):
        answers = [a for a in (*arm.answers, *arm.probes) if a.failure is not None and a.failure.kind == kind]
        if not answers:
            continue
        alone = [a for a in answers if a.prompt not in of_plain]
        blocks = not infra and arm is evidence.spec and bool(alone)
        severity: Severity = "block" if blocks else "unreadable"
        first = (alone if blocks else answers)[0]
        assert first.failure is not None
        count = len({a.prompt for a in (alone if blocks else answers)})
        also = "; plain's replies come whole there" if blocks else ""
        yield finding(
            evidence,
            code,
            severity,
            f"{what} on {count} of {len(evidence.prompts)} prompts{also} ({quote(first.failure.message, 200)})",
            arm=arm.arm.name,
            prompt=first.prompt,
            prompts=count,
            replies=len(answers),
        )
