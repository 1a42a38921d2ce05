"""control-token: a token such as a turn's start inside the answer's body, where plain has none."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, quote
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for prompt, comparison in evidence.spec.comparisons.items():
        own = evidence.plain.comparisons.get(prompt)
        found = comparison.control_tokens
        if len(found) <= (len(own.control_tokens) if own else 0):
            continue
        which = ""
        divergence = comparison.divergence
        if divergence is not None and divergence.token_index in found:
            which = f" ({quote(divergence.other_token_text)})"
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"has {len(found)} control tokens in its body, first at token {found[0]}{which}; "
            f"plain has {len(own.control_tokens) if own else 0}",
            prompt=prompt,
            indices=list(found[:20]),
        )


RULE = TaskRule(
    code="control-token",
    severity="block",
    basis="pair",
    summary="Control tokens stand inside the answer's body, more than in plain's.",
    advice="Serve without this head: clients would see the chat template's own marks.",
    check=check,
)
