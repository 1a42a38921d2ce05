"""post-stop-leak: tokens delivered after the stop, as when a step of several tokens runs past it."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    answers = evidence.spec.by_prompt()
    for prompt, comparison in evidence.spec.comparisons.items():
        own = evidence.plain.comparisons.get(prompt)
        leaked = comparison.tokens_after_stop
        if leaked <= (own.tokens_after_stop if own else 0):
            continue
        stop = answers[prompt].tokens - leaked - 1
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"delivers {leaked} tokens after the stop at token {stop} and reports finish={comparison.finish}; "
            f"plain reports finish={comparison.base_finish}",
            prompt=prompt,
            tokens_after_stop=leaked,
            stop_index=stop,
            finish=comparison.finish,
            plain_finish=comparison.base_finish,
        )


RULE = TaskRule(
    code="post-stop-leak",
    severity="block",
    basis="arm",
    summary="Tokens were delivered after the end-of-sequence token, more than plain delivered.",
    advice="Do not serve this runtime with speculation: clients get text that the model did not mean to send.",
    check=check,
)
