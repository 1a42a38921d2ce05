"""Decode throughput of the arm by plain's, paired by prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from gate.evidence import AnswerFacts, Evidence


def rates(answers: Iterable[AnswerFacts]) -> dict[str, float]:
    """Tokens per second after the first step, by prompt: the median of its repeats. Unmeasured ones are left out."""
    by_prompt: defaultdict[str, list[float]] = defaultdict(list)
    for answer in answers:
        if answer.rate is not None:
            by_prompt[answer.prompt].append(answer.rate)
    return {prompt: median(values) for prompt, values in by_prompt.items()}


def ratios(evidence: Evidence) -> dict[str, float]:
    """The arm's rate by plain's on the same prompt, where both were measured."""
    plain, arm = rates(evidence.plain.answers), rates(evidence.spec.answers)
    return {p: arm[p] / plain[p] for p in evidence.prompts if p in arm and plain.get(p, 0) > 0}


def speed_ratio(evidence: Evidence) -> float | None:
    """Median over prompts of the ratio, None where no prompt has both."""
    found = ratios(evidence)
    return median(found.values()) if found else None
