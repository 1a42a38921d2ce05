"""How many prompts would it take? Said where a verdict is inconclusive, so that the user knows what to run.

All of it follows from the two tests of `evals.statistics`: the floor (nothing is non-inferior before enough prompts
were seen without a loss) and the sign-flip test (nothing is worse before enough prompts lost something).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from evals.statistics import PairedScore, chance_below

FORESEEABLE = 100_000
"""Beyond this many prompts the answer is "no number of prompts that one would run"."""


def smallest_prompts(margin: float, confidence: float = 0.95) -> int:
    """Prompts without any loss that are needed before non-inferiority can be said: (1 - margin)^n <= 1 - confidence."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - margin))


def prompts_to_see(losing_share: float = 0.1, power: float = 0.9) -> int:
    """Prompts of which at least one shows, with this power, a loss that strikes this share of them:
    1 - (1 - losing_share)^n >= power."""
    return math.ceil(math.log(1 - power) / math.log(1 - losing_share))


def losing_prompts_needed(worse_confidence: float = 0.99) -> int:
    """Prompts that must lose something, none gaining, before a loss is beyond chance: 2^-n <= 1 - confidence."""
    return math.ceil(-math.log2(1 - worse_confidence))


def prompts_to_call(losing_share: float, worse_confidence: float = 0.99, power: float = 0.9) -> int:
    """Prompts that are needed to call a loss which strikes this share of prompts (0 to 1) and gains none, with this
    power.

    The smallest n with P(Binomial(n, losing_share) >= losing_prompts_needed) >= power; how many cases such a
    prompt loses doesn't matter. Raises ValueError for a share that isn't above 0.
    """
    if not 0 < losing_share <= 1:
        raise ValueError(f"expected a share of losing prompts above 0 and up to 1, found {losing_share}")
    from scipy.stats import nbinom

    needed = losing_prompts_needed(worse_confidence)
    return needed + int(nbinom.ppf(power, needed, losing_share))


def prompts_to_settle(
    score: PairedScore, confidence: float = 0.95, worse_confidence: float = 0.99, power: float = 0.9
) -> int | None:
    """About how many prompts like those seen would settle the score, one way or the other, with this power.

    Prompts of the same kind keep their differences in the same shares; a drawn sample's mean then lies up to
    z(power) * spread / sqrt(n) on the wrong side. None where no number below `FORESEEABLE` settles it.
    """
    ways = [_to_pass(score, confidence, power), _to_call(score, worse_confidence, power)]
    found = [n for n in ways if n is not None]
    return min(found) if found else None


def _to_pass(score: PairedScore, confidence: float, power: float) -> int | None:
    """Prompts until the floor clears the margin."""
    from scipy.stats import norm

    values = [d for d, _ in score.differences]
    adverse = float(norm.ppf(power)) * score.spread

    def clears(n: int) -> bool:
        counts = [count * n / score.prompts for _, count in score.differences]
        bound = adverse / math.sqrt(n) - score.margin
        return chance_below([*values, -1.0], [*counts, 1.0], bound) <= 1 - confidence

    return _first(clears, smallest_prompts(score.margin, confidence))


def _to_call(score: PairedScore, worse_confidence: float, power: float) -> int | None:
    """Prompts until the loss is beyond chance."""
    from scipy.stats import norm

    if score.difference >= 0:
        return None
    z = float(norm.ppf(worse_confidence) + norm.ppf(power))
    least = prompts_to_call(score.losing_prompts / score.prompts, worse_confidence, power)
    n = max(least, math.ceil((z * score.spread / score.difference) ** 2))
    return n if n <= FORESEEABLE else None


def _first(holds: Callable[[int], bool], start: int) -> int | None:
    """The smallest n from start up for which a condition holds that then goes on holding."""
    low, high = start - 1, start
    while not holds(high):
        low, high = high, 2 * high
        if low >= FORESEEABLE:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
