"""Leaves out of a report what was asked and answered; scores, counts, numbers, names and reason codes stay.

A finding's message may quote tokens or observed values, so a redacted finding says its case, outcomes and numbers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from evals.types import Comparison, Grade
from gate.types import Finding, TaskVerdict, Verdict

MESSAGE = "left out of a redacted report"
_NAMES = {"case", "outcome", "plain_outcome", "noise_quantile", "source"}
"""Evidence that is text but no word of a model."""


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
    """`found` with findings that hold numbers and names only, also where a task's sentence quotes one."""
    findings = tuple(_finding(finding) for finding in found.findings)
    said = {old.message: new.message for old, new in zip(found.findings, findings, strict=True)}
    return msgspec.structs.replace(
        found, findings=findings, tasks=tuple(_without_quotes(task, said) for task in found.tasks)
    )


def _without_quotes(task: TaskVerdict, said: dict[str, str]) -> TaskVerdict:
    sentence = task.sentence
    for old in sorted(said, key=len, reverse=True):
        sentence = sentence.replace(old, said[old])
    return msgspec.structs.replace(task, sentence=sentence)


def _finding(found: Finding) -> Finding:
    numbers = _numbers(found.evidence)
    words = [
        f"{name.replace('_', ' ')} {value}" for name, value in numbers.items() if not isinstance(value, dict)
    ]
    place = ", ".join(part for part in (found.task, found.prompt, found.arm) if part is not None)
    message = f"{place}: {', '.join(words) or MESSAGE}" if place else ", ".join(words) or MESSAGE
    return msgspec.structs.replace(found, message=message, evidence=numbers)


def _numbers(evidence: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in evidence.items():
        if isinstance(value, dict):
            if inner := _numbers(value):
                kept[name] = inner
        elif isinstance(value, (int, float)) or (name in _NAMES and isinstance(value, str)):
            kept[name] = value
    return kept
