"""stream-mismatch: what a client of the stream would join is not what the delivered ids decode to."""

from __future__ import annotations

from collections.abc import Iterator

from evals.types import Comparison
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, place_of
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
    yield from _against_whole(evidence)


def _against_whole(evidence: Evidence) -> Iterator[Finding]:
    """A served answer asked for again without a stream: other bytes, though the streamed ones repeat themselves.

    Spaces at the end are passed over: some servers trim whole replies (transformers' serve), head or no head.
    """
    unsteady = {c.prompt for c in evidence.spec.repeats if not c.identical}
    plain_too = any(
        a.probe == "whole" and not c.identical and not _trimmed(c) for a, c in evidence.plain.probe_repeats
    )
    for answer, comparison in evidence.spec.probe_repeats:
        if answer.probe != "whole" or comparison.identical or comparison.prompt in unsteady:
            continue
        if _trimmed(comparison):
            continue
        severity: Severity = "note" if plain_too else "block"
        yield finding(
            evidence,
            RULE.code,
            severity,
            f"asked for without a stream the answer is another from {place_of(comparison.divergence)} on"
            + ("; plain's is so too" if plain_too else ""),
            prompt=comparison.prompt,
            plain_too=plain_too,
        )


def _trimmed(comparison: Comparison) -> bool:
    """Whether the texts differ in spaces at their end only."""
    at = comparison.divergence
    return at is not None and not at.base_after.strip() and not at.other_after.strip()


RULE = TaskRule(
    code="stream-mismatch",
    severity="block",
    basis="arm",
    summary="The streamed text repeats, drops or changes what the delivered ids say.",
    advice="Do not serve this head to clients that stream.",
    check=check,
)
