"""How often a loss is called, and how often none is, over 1,000 seeds (the power bar of issue "3.").

Prompts of ten cases each, judged as a run's are (margin 0.05, confidence 0.95, a loss called at 0.99):
- cases: each case of a prompt is lost with probability 0.1, 40 prompts. Bar: called 9 times in 10.
- prompts: a tenth of the prompts lose all their cases; the number of prompts is `evals.power.prompts_to_call`'s. Bar:
  called 9 times in 10.
- none: nothing is lost. Bar: called at most 1 time in 100.
- swaps: each case fails with probability 0.1 in each arm on its own, so that cases are lost and gained and nothing is
  lost on average. Same bar; the test is exact, so 1 in 100 holds up to what 1,000 draws can show.

Exits 1 where a bar isn't met. `python tests/bench/bench_power.py [SEEDS]`
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.stats import binom

from evals.power import prompts_to_call, smallest_prompts
from evals.statistics import PromptPair, compare_scores, judge

CASES, MARGIN, ALL_RIGHT = 10, 0.05, (True,) * 10


def draw(model: str, prompts: int, rng: np.random.Generator) -> list[PromptPair]:
    def cases() -> tuple[bool, ...]:
        return tuple(bool(x) for x in rng.random(CASES) >= 0.1)

    def one(i: int) -> PromptPair:
        if model == "cases":
            return PromptPair(str(i), ALL_RIGHT, cases())
        if model == "prompts":
            return PromptPair(str(i), ALL_RIGHT, (bool(rng.random() >= 0.1),) * CASES)
        if model == "swaps":
            return PromptPair(str(i), cases(), cases())
        return PromptPair(str(i), ALL_RIGHT, ALL_RIGHT)

    return [one(i) for i in range(prompts)]


def called(model: str, prompts: int, seeds: int) -> int:
    """In how many of the seeds the loss is called."""
    total = 0
    for seed in range(seeds):
        score = compare_scores(draw(model, prompts, np.random.default_rng(seed)), MARGIN)
        assert score is not None
        total += judge({0: score})[0].outcome == "worse"
    return total


def main(seeds: int) -> int:
    print(
        f"margin {MARGIN}: non-inferior after {smallest_prompts(MARGIN)} prompts without a loss at the earliest"
    )
    print(f"a tenth of the prompts lost: {prompts_to_call(0.1)} prompts for 9 in 10")
    few = int(binom.ppf(0.999, seeds, 0.01))
    bars = [
        ("cases", 40, 0.9, 1.0),
        ("prompts", prompts_to_call(0.1), 0.9, 1.0),
        ("none", 40, 0.0, 0.01),
        ("swaps", 40, 0.0, few / seeds),
        ("swaps", prompts_to_call(0.1), 0.0, few / seeds),
    ]
    missed = 0
    for model, prompts, low, high in bars:
        share = called(model, prompts, seeds) / seeds
        met = low <= share <= high
        missed += not met
        print(
            f"{model:8} {prompts:4} prompts: called in {share:6.1%} of {seeds} seeds  {'ok' if met else 'MISSED'}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
