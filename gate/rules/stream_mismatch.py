"""stream-mismatch: what a client of the stream would join is not what the delivered ids decode to."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for prompt, comparison in evidence.spec.comparisons.items():
        if comparison.stream_matches is not False:
            continue
        own = evidence.plain.comparisons.get(prompt)
        plain_too = own is not None and own.stream_matches is False
        severity: Severity = "note" if plain_too else "block"
        ids = "equal plain's" if comparison.divergence is None else "differ from plain's as well"
        yield finding(
            evidence,
            RULE.code,
            severity,
            "the joined stream is not the text of the delivered ids"
            + ("; plain's isn't either, so it is not the head's doing" if plain_too else f" (the ids {ids})"),
            prompt=prompt,
            plain_too=plain_too,
        )


RULE = TaskRule(
    code="stream-mismatch",
    severity="block",
    basis="arm",
    summary="The streamed text repeats, drops or changes what the delivered ids say.",
    advice="Do not serve this head to clients that stream.",
    check=check,
)
