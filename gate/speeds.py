"""Decode throughput of the arm by plain's, paired by prompt, or by batch where several requests are in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from evals.speed import median_interval
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


def samples(evidence: Evidence) -> dict[str, float]:
    """The ratios that are samples of their own, by what they are of: prompts, or batches. Prompts that were in flight
    together have the ratio of their batch, which counts once."""
    batch_of = {a.prompt: a.batch for a in evidence.spec.first()}
    return {
        f"{evidence.task}/{p}" if batch_of.get(p) is None else f"batch {batch_of[p]}": ratio
        for p, ratio in ratios(evidence).items()
    }


def surely_below(ratios: Sequence[float], least: float, confidence: float) -> bool:
    """Whether the median lies below `least` beyond what speeds scatter by: its interval does, or, of too few for one,
    every ratio."""
    bounds = median_interval(ratios, confidence)
    return (bounds[1] if bounds else max(ratios)) < least


def held_up(ratio: float, least: float) -> str:
    """What is said of a depth before the one at which the arm is surely slower."""
    return "is worth it" if ratio >= least else "is hardly slower"


def speed_ratio(evidence: Evidence) -> float | None:
    """Median of the ratios, None where none was measured."""
    found = samples(evidence)
    return median(found.values()) if found else None


def step_cost(evidence: Evidence) -> float | None:
    """Seconds of one step of the arm (drafting, and verifying K + 1 tokens) by those of plain's step of width 1, median
    over prompts. The head pays where a step delivers more tokens than this."""
    plain = {a.prompt: a.step_s for a in evidence.plain.first() if a.step_s}
    found = [a.step_s / plain[a.prompt] for a in evidence.spec.first() if a.step_s and a.prompt in plain]
    return median(found) if found else None


def speed_facts(evidence: Evidence, confidence: float) -> dict[str, Any]:
    """Ratio, its interval, prompts (or batches) and step cost, for the verdict's statistics; empty where nothing was
    measured."""
    found = samples(evidence)
    if not found:
        return {}
    bounds = median_interval(list(found.values()), confidence)
    return {
        "ratio": median(found.values()),
        "low": bounds[0] if bounds else None,
        "high": bounds[1] if bounds else None,
        "prompts": len(found),
        "confidence": confidence,
        "step_cost": step_cost(evidence),
    }
