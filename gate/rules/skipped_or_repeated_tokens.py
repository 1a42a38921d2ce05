"""skipped-or-repeated-tokens: plain's text with pieces cut out or said twice, and otherwise word for word.

Structure alone is no proof: at a near-tie an honest answer can drop a sentence and go on as plain does. A sound arm's
tokens are all the best within the width noise, given its own text; lost or doubled state shows as a wide gap. So where
margins are evidence they decide, and where there are none only an exact task or several spans are held certain.
"""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.margins import describe, facts, read_margin
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, quote
from gate.types import Finding, Severity


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for prompt, comparison in evidence.spec.comparisons.items():
        aligned = comparison.realignment
        if aligned is None or not (aligned.skipped or aligned.repeated):
            continue
        margin = evidence.margins.get(prompt)
        reading = read_margin(margin, policy, comparison.divergence)
        if reading is not None and reading.nearness == "near":
            continue
        spans = len(aligned.skipped) + sum(span.times for span in aligned.repeated)
        certain = (
            (reading is not None and reading.nearness == "wide")
            or evidence.kind == "exact"
            or spans >= policy.thresholds.min_unmeasured_spans
        )
        severity: Severity = "block" if certain else "unreadable"
        parts = []
        if aligned.skipped:
            first = aligned.skipped[0]
            parts.append(
                f"drops {len(aligned.skipped)} spans of plain's answer "
                f"(first: plain's tokens {first.start} to {first.stop - 1}, {quote(first.text)})"
            )
        if aligned.repeated:
            first = aligned.repeated[0]
            parts.append(
                f"says {len(aligned.repeated)} spans again "
                f"(first: tokens {first.start} to {first.stop - 1}, {quote(first.text)})"
            )
        if margin is not None and reading is not None:
            why = describe(margin, reading)
        elif certain:
            why = "no margin was measured; an answer that is right can't look so"
        else:
            why = "no margin was measured, so an honest sentence less can't be told from a lost one"
        yield finding(
            evidence,
            RULE.code,
            severity,
            f"{' and '.join(parts)}; {100 * aligned.realigned:.0f} % of the rest re-aligns; {why}",
            prompt=prompt,
            skipped=[[s.start, s.stop] for s in aligned.skipped[:50]],
            repeated=[[s.start, s.stop] for s in aligned.repeated[:50]],
            realigned=aligned.realigned,
            **(facts(margin, reading) if margin is not None and reading is not None else {}),
        )


RULE = TaskRule(
    code="skipped-or-repeated-tokens",
    severity="block",
    basis="pair",
    summary="Plain's answer with tokens lost or doubled and otherwise unchanged: lost state, not a near-tie.",
    advice="Do not serve this runtime with speculation: its state is not rewound after a rejected draft.",
    check=check,
)
