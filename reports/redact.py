"""Leaves out of a report what was asked and answered; scores, counts, numbers, names and reason codes stay.

A finding's message may quote tokens, so a redacted finding says its code and its numbers instead.
"""

from __future__ import annotations

from typing import Any

import msgspec

from evals.types import Comparison, Grade
from gate.types import Finding, Verdict

MESSAGE = "(left out: this report is redacted)"


def comparison(found: Comparison) -> Comparison:
    """`found` without the tokens' texts and the context."""
    divergence = found.divergence and msgspec.structs.replace(
        found.divergence, base_token_text="", other_token_text="", before="", base_after="", other_after=""
    )
    return msgspec.structs.replace(found, divergence=divergence, realignment=None)


def grade(found: Grade) -> Grade:
    """`found` without observed and expected values; outcomes stay."""
    cases = tuple(msgspec.structs.replace(case, observed="", expected="") for case in found.cases)
    return msgspec.structs.replace(found, cases=cases, reason="")


def verdict(found: Verdict) -> Verdict:
    """`found` with findings that hold numbers only."""
    return msgspec.structs.replace(found, findings=tuple(_finding(finding) for finding in found.findings))


def _finding(found: Finding) -> Finding:
    numbers = _numbers(found.evidence)
    said = ", ".join(f"{name} {value}" for name, value in numbers.items() if not isinstance(value, dict))
    return msgspec.structs.replace(found, message=said or MESSAGE, evidence=numbers)


def _numbers(evidence: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in evidence.items():
        if isinstance(value, dict):
            if inner := _numbers(value):
                kept[name] = inner
        elif isinstance(value, (int, float)) or value is None:
            kept[name] = value
    return kept
