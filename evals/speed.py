"""Is the head worth it? Decode throughput of an arm beside plain's, prompt by prompt.

Prompts differ in length and in how well they can be drafted, so a ratio of means says little: each prompt's ratio is
taken between two answers decoded one after the other (the arms are interleaved), and the median over prompts gets a
bootstrap interval. The time to the first token isn't part of it: a head changes nothing there.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import msgspec

from evals.types import Answer

FEWEST = 5
"""Prompts below which no interval is given."""

RESAMPLES = 4999

Measure = Callable[[Answer], float | None]


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decode throughput of an arm by that of the base, over the prompts that both answered.

    ratio: median over prompts; over 1 the arm is faster. low, high: its bootstrap interval at `confidence`, None below
    `FEWEST` prompts. base_rate, arm_rate: medians in tokens per second. by_prompt: "task/prompt" to ratio.
    """

    prompts: int
    ratio: float
    low: float | None
    high: float | None
    confidence: float
    base_rate: float
    arm_rate: float
    by_prompt: dict[str, float]


class StepCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one step of the arm costs in steps of the base, medians over prompts.

    cost: seconds of a step of the arm (drafting K tokens and verifying K + 1) by seconds of the base's step of width
    1. It's the verify cost and the drafting together, which is what has to be earned back: the arm is faster where
    tokens_per_step is above cost.
    """

    cost: float
    tokens_per_step: float
    prompts: int


def decode_rate(answer: Answer) -> float | None:
    """Tokens per second after the first step, or None where that wasn't measured or only one step was made."""
    if answer.failure or not answer.decode_s or answer.decode_s <= 0:
        return None
    tokens = len(answer.ids) - (answer.steps[0] if answer.steps else 1)
    return tokens / answer.decode_s if tokens > 0 else None


def paired_speed(
    base: Iterable[Answer], arm: Iterable[Answer], confidence: float = 0.95, seed: int = 0
) -> Speed | None:
    """Compare the decode throughput of two arms on the prompts that both answered; None where there is none.

    Repeats of a prompt count by their median; probes aren't counted. The same seed gives the same interval.
    """
    bases, arms = _by_prompt(base, decode_rate), _by_prompt(arm, decode_rate)
    both = sorted(bases.keys() & arms.keys())
    if not both:
        return None
    ratios = [arms[p] / bases[p] for p in both]
    low, high = _interval(ratios, confidence, seed)
    return Speed(
        prompts=len(both),
        ratio=median(ratios),
        low=low,
        high=high,
        confidence=confidence,
        base_rate=median(bases[p] for p in both),
        arm_rate=median(arms[p] for p in both),
        by_prompt=dict(zip(both, ratios, strict=True)),
    )


def speed_by_depth(
    base: Iterable[Answer],
    arm: Iterable[Answer],
    edges: Sequence[int],
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Speed]:
    """`paired_speed` apart for each range of prompt lengths, as a head can be faster at 512 tokens and slower at 98K
    (openvino.genai#4483). edges: ascending prompt lengths in tokens at which a new range begins; ranges without
    a pair are left out. Keys read "512-4095", the last one "4096-"."""
    bounds = sorted({0, *edges})
    bases, arms = list(base), list(arm)
    found = {}
    for low, high in zip(bounds, [*bounds[1:], sys.maxsize], strict=True):
        speed = paired_speed(
            (a for a in bases if low <= a.prompt_tokens < high),
            (a for a in arms if low <= a.prompt_tokens < high),
            confidence,
            seed,
        )
        if speed:
            found[f"{low}-{'' if high == sys.maxsize else high - 1}"] = speed
    return found


def step_cost(base: Iterable[Answer], arm: Iterable[Answer]) -> StepCost | None:
    """Seconds of one step of the arm by those of one step of the base; None where no prompt has both."""
    answers = list(arm)
    bases, arms = _by_prompt(base, _step_seconds), _by_prompt(answers, _step_seconds)
    tokens = _by_prompt(answers, _tokens_per_step)
    both = sorted(bases.keys() & arms.keys())
    if not both:
        return None
    return StepCost(
        cost=median(arms[p] / bases[p] for p in both),
        tokens_per_step=median(tokens[p] for p in both),
        prompts=len(both),
    )


def acceptance_windows(answers: Iterable[Answer], k: int, windows: int = 4) -> list[tuple[int, int]]:
    """Accepted drafts and drafted slots by place in the answer: window i holds the steps that begin in the i-th of
    `windows` equal parts of their answer, summed over answers.

    Read from step sizes: a step of n tokens accepted n - 1 of k. The first step (no draft yet) and the last one (cut by
    the stop or the budget) aren't counted.
    """
    counts = [[0, 0] for _ in range(windows)]
    for answer in answers:
        place = 0
        for i, size in enumerate(answer.steps):
            if 0 < i < len(answer.steps) - 1:
                window = counts[min(windows - 1, place * windows // max(1, len(answer.ids)))]
                window[0] += min(size - 1, k)
                window[1] += k
            place += size
    return [(accepted, slots) for accepted, slots in counts]


def _by_prompt(answers: Iterable[Answer], measure: Measure) -> dict[str, float]:
    """Median of a measure over each prompt's repeats, by "task/prompt"; prompts where it is unknown are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        value = None if answer.probe else measure(answer)
        if value is not None:
            found[f"{answer.task}/{answer.prompt}"].append(value)
    return {prompt: median(values) for prompt, values in found.items()}


def _step_seconds(answer: Answer) -> float | None:
    if answer.failure or not answer.decode_s or len(answer.steps) < 2:
        return None
    return answer.decode_s / (len(answer.steps) - 1)


def _tokens_per_step(answer: Answer) -> float | None:
    if answer.failure or len(answer.steps) < 2:
        return None
    return (len(answer.ids) - answer.steps[0]) / (len(answer.steps) - 1)


def _interval(ratios: Sequence[float], confidence: float, seed: int) -> tuple[float | None, float | None]:
    """Percentile bootstrap of the median over prompts."""
    if len(ratios) < FEWEST:
        return None, None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(ratios),),
        np.median,
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)
