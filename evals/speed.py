"""Is the head worth it? Decode throughput of an arm beside plain's, prompt by prompt.

Prompts differ in length and in how well they can be drafted, so a ratio of means says little: each prompt's ratio is
taken between two answers decoded one after the other (the arms are interleaved), and the median over prompts gets a
bootstrap interval. The time to the first token isn't part of it: a head changes nothing there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from evals.together import BatchRates, Place, place_of
from evals.types import Answer

FEWEST = 5
"""Prompts below which no interval is given."""

RESAMPLES = 4999
BATCH = 200
"""Resamples in memory at once: a run may have tens of thousands of prompts."""


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


def decode_rate(answer: Answer) -> float | None:
    """Tokens per second after the first step, or None where that wasn't measured or only one step was made.

    Of a served answer: billed tokens per second after the first piece of its stream.
    """
    if answer.failure or not answer.decode_s or answer.decode_s <= 0:
        return None
    if answer.generated is None:
        return None
    tokens = answer.generated - (answer.steps[0] if answer.steps else 1)
    return tokens / answer.decode_s if tokens > 0 else None


def paired_speed(
    base: Iterable[Answer], arm: Iterable[Answer], confidence: float = 0.95, seed: int = 0
) -> Speed | None:
    """Compare the decode throughput of two arms on the prompts that both answered; None where there is none.

    Repeats of a prompt count by their median; probes aren't counted. The same seed gives the same interval.
    """
    bases, arms = _rates(base), _rates(arm)
    both = sorted(bases.keys() & arms.keys())
    if not both:
        return None
    ratios = [arms[p] / bases[p] for p in both]
    low, high = median_interval(ratios, confidence, seed) or (None, None)
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


def _rates(answers: Iterable[Answer]) -> dict[str, float]:
    """Median rate over the repeats of each prompt ("task/prompt") or, where several were in flight, of each batch
    ("batch N"); where it is unknown they are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    batches, places = BatchRates(), dict[Place, None]()
    for answer in answers:
        batches.add(answer)
        rate = None if answer.probe else decode_rate(answer)
        if answer.batch is not None:
            places[place_of(answer)] = None
        elif rate is not None:
            found[f"{answer.task}/{answer.prompt}"].append(rate)
    for place in places:
        together = batches.rate(place)
        if together is not None:
            found[f"batch {place[3]}"].append(together)
    return {prompt: median(values) for prompt, values in found.items()}


def median_interval(values: Sequence[float], confidence: float, seed: int = 0) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the median; None below `FEWEST` values. Values are drawn anew, so they must be
    one a prompt."""
    if len(values) < FEWEST:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values),),
        np.median,
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        batch=BATCH,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)
