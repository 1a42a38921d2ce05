"""degenerate-spec: the arm's answer is empty or loops where plain's doesn't."""

from __future__ import annotations

from collections.abc import Iterator

from gate.degenerate import degenerate
from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = evidence.plain.by_prompt()
    for answer in evidence.spec.first():
        base = plain.get(answer.prompt)
        why = degenerate(answer, policy)
        if why is None or base is None or base.failure or degenerate(base, policy):
            continue
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"the answer {why}, where plain's does not",
            prompt=answer.prompt,
            tokens=answer.tokens,
            repeated_4gram_share=answer.repeated,
        )


RULE = TaskRule(
    code="degenerate-spec",
    severity="block",
    basis="pair",
    summary="The arm's answer is empty, loops, or says one token for ever, where plain's does not.",
    advice="Serve without this head, or try other numerics (KV precision, precision hint, K = 1).",
    check=check,
)
