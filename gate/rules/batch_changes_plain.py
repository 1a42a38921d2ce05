"""batch-changes-plain: plain with several requests in flight answers otherwise than alone, which is no head's doing."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, parted, parted_facts
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = evidence.plain
    differing = [c for c in plain.beside_alone if not c.identical]
    if not differing:
        return
    first = differing[0]
    where = f", first {first.prompt}, which {parted(first.divergence)}" if first.divergence else ""
    yield finding(
        evidence,
        RULE.code,
        "note",
        f"with {plain.arm.concurrency} requests in flight {len(differing)} of {len(plain.beside_alone)} answers differ "
        f"from plain's alone{where}: the batch does that, not the head, and the arm is held against plain under the "
        "same load",
        arm=plain.arm.name,
        prompt=first.prompt,
        differing=len(differing),
        prompts=len(plain.beside_alone),
        **(parted_facts(first.divergence) if first.divergence else {}),
    )


RULE = TaskRule(
    code="batch-changes-plain",
    severity="note",
    basis="arm",
    summary="Plain answers differently with several requests in flight than alone.",
    advice="Nothing to do for the head; expect texts to depend on load, with and without it.",
    check=check,
)
