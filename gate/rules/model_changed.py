"""model-changed: the model's files changed while they were being judged, so nobody knows what was judged."""

from __future__ import annotations

from collections.abc import Iterator

from evals.types import UNKNOWN
from gate.evidence import RunEvidence
from gate.policy import Policy
from gate.rules.base import RunRule
from gate.types import Finding


def check(run: RunEvidence, policy: Policy) -> Iterator[Finding]:
    before = run.manifest.model_digest_before
    if run.end is None or before == UNKNOWN:
        return
    after = run.end.model_digest_after
    if after is None and run.end.complete:
        message = (
            f"the digest of {run.manifest.model} was not taken after decoding, so a change can't be ruled out"
        )
    elif after is not None and after != before:
        message = (
            f"the files of {run.manifest.model} changed during the run: "
            f"digest {before[:12]} before, {after[:12]} after; the run is void"
        )
    else:
        return
    yield Finding(RULE.code, "unreadable", message, evidence={"before": before, "after": after})


RULE = RunRule(
    code="model-changed",
    severity="unreadable",
    basis="run",
    summary="The model directory's digest differs before and after decoding: the run is void.",
    advice="Leave the model directory alone while the gate runs, and run it again.",
    check=check,
)
