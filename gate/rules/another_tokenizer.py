"""another-tokenizer: plain's own texts split into other numbers of tokens than are billed, so nothing counts tokens."""

from __future__ import annotations

from collections.abc import Iterator

from gate.delivery import another_tokenizer
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    found = another_tokenizer(evidence.plain)
    if found is None:
        return
    split, billed = found
    yield finding(
        evidence,
        RULE.code,
        "unreadable",
        f"the texts are {split} tokens by --tokenizer and are billed as {billed}: it is not the served model's "
        "tokenizer, or the server doesn't deliver all that it bills (a hidden thinking), without a head too",
        arm=evidence.plain.arm.name,
        split=split,
        billed=billed,
    )


RULE = TaskRule(
    code="another-tokenizer",
    severity="unreadable",
    basis="arm",
    summary="The tokenizer that was named does not count as the plain server bills.",
    advice="Give --tokenizer the directory of the served model itself, or leave it out: answers are then compared byte "
    "by byte.",
    check=check,
)
