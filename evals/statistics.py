"""Did an arm lose cases, or is it chance? Cases are paired between arms and clustered by prompt.

Ten cases of one program fall together: a prompt is the unit that is drawn, a case isn't. What decides therefore rests
on prompts; McNemar's test, which people expect, rests on cases:

- `worse_p`: exact one-sided sign-flip test. If the arm were as good as the base, each prompt's net loss could as well
  have been a net gain of that size. A loss in fewer than five prompts can't reach 0.05, in fewer than seven 0.01.
- `low`, `high`: bootstrap interval of the score difference, prompts drawn anew (scipy). Where all prompts have one
  difference it would have no width, and the bounds of `floor` stand in on both sides.
- `floor`: a lower bound of the difference for non-inferiority. A bootstrap can't draw a loss that hasn't been seen: ten
  prompts without a loss would give an interval of width zero. The bound therefore adds the worst prompt there could be
  and weighs all prompts at random, uniformly on the simplex (Gaffke 2005; Learned-Miller and Thomas 2019,
  arXiv:1905.06208). Where prompts are lost whole or not at all it is the Clopper-Pearson bound. `inferior_p` is the
  level at which it meets the margin.

Of several tests at once each p-value is corrected (Holm), and only then is anything called.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from evals.types import Grade
from tasks.types import conversation_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Key = TypeVar("Key", bound=Hashable)

RESAMPLES = 4999
BATCH = 200
"""Resamples in memory at once: a run may have tens of thousands of prompts."""


class PromptPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One prompt's cases in both arms: the same cases in the same order, True where passed."""

    prompt: str
    base: tuple[bool, ...]
    arm: tuple[bool, ...]

    @property
    def net_lost(self) -> int:
        """Cases that only the base passed, less those that only the arm passed."""
        return sum(self.base) - sum(self.arm)

    @property
    def difference(self) -> float:
        """The arm's share of passed cases less the base's."""
        return -self.net_lost / len(self.base)


class PairedScore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An arm's score beside the base's, on the same cases of the same prompts.

    lost, gained: cases that only the base, only the arm passed. losing_prompts: prompts with a net loss. difference:
    arm less base, mean over prompts of the share of passed cases, -1 to 1. low, high, floor, worse_p, inferior_p: see
    the module. mcnemar_p: exact, two-sided, cases taken as independent, which they aren't.
    """

    prompts: int
    cases: int
    lost: int
    gained: int
    losing_prompts: int
    base_score: float
    arm_score: float
    difference: float
    low: float
    high: float
    floor: float
    mcnemar_p: float
    worse_p: float
    inferior_p: float
    margin: float
    confidence: float
    differences: tuple[tuple[float, int], ...]
    """each difference that a prompt has, and how many prompts have it"""

    @property
    def spread(self) -> float:
        """Standard deviation of the difference between prompts."""
        mean = self.difference
        return math.sqrt(sum(n * (d - mean) ** 2 for d, n in self.differences) / max(1, self.prompts - 1))


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a paired score allows to say. worse_p and inferior_p are corrected for the number of scores judged.

    non_inferior: less than the margin is lost. worse: cases are lost beyond chance. Else inconclusive.
    """

    outcome: Literal["non_inferior", "worse", "inconclusive"]
    worse_p: float
    inferior_p: float


def pairs_of(base: Iterable[Grade], arm: Iterable[Grade]) -> tuple[PromptPair, ...]:
    """Pair two arms' grades by prompt and by case name; first repeats only.

    A case that the machine's trouble decided (`infra`) on either side is left out, and so is a prompt that has no case
    left. Prompts are named "task/prompt" and sorted.
    """
    bases, arms = _first_repeats(base), _first_repeats(arm)
    pairs = []
    for prompt in sorted(bases.keys() & arms.keys()):
        both = [c for c in bases[prompt] if c in arms[prompt]]
        if both:
            pairs.append(
                PromptPair(
                    prompt, tuple(bases[prompt][c] for c in both), tuple(arms[prompt][c] for c in both)
                )
            )
    return tuple(pairs)


def compare_scores(
    pairs: Sequence[PromptPair], margin: float, confidence: float = 0.95, seed: int = 0
) -> PairedScore | None:
    """Compare an arm's score with the base's; None where there is no pair.

    margin: the loss of score, above 0 and below 1, that is too much. confidence: of the interval and of the floor. The
    same seed gives the same numbers. Raises ValueError for a margin or a confidence out of range.
    """
    for name, value in (("margin", margin), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"expected a {name} above 0 and below 1, found {value}: give another one")
    if not pairs:
        return None
    import numpy as np

    differences = np.array([p.difference for p in pairs])
    cases = [case for p in pairs for case in zip(p.base, p.arm, strict=True)]
    lost, gained = cases.count((True, False)), cases.count((False, True))
    low, high = _interval(differences, confidence, seed)
    values, counts = (part.tolist() for part in np.unique(differences, return_counts=True))
    return PairedScore(
        prompts=len(pairs),
        cases=len(cases),
        lost=lost,
        gained=gained,
        losing_prompts=sum(p.net_lost > 0 for p in pairs),
        base_score=float(np.mean([np.mean(p.base) for p in pairs])),
        arm_score=float(np.mean([np.mean(p.arm) for p in pairs])),
        difference=float(differences.mean()),
        low=low,
        high=high,
        floor=floor_of(values, counts, confidence),
        mcnemar_p=mcnemar(lost, gained),
        worse_p=sign_flip([p.net_lost for p in pairs]),
        inferior_p=chance_below([*values, -1.0], [*counts, 1.0], -margin),
        margin=margin,
        confidence=confidence,
        differences=tuple(zip(values, counts, strict=True)),
    )


def judge(
    scores: Mapping[Key, PairedScore], confidence: float = 0.95, worse_confidence: float = 0.99
) -> dict[Key, Judgement]:
    """Say of each score whether the arm is non-inferior, worse, or neither can be said, corrected for their number.

    A loss beyond chance that is certainly smaller than the margin is non-inferior: that's what a margin means.
    """
    inferior = holm([s.inferior_p for s in scores.values()])
    worse = holm([s.worse_p for s in scores.values()])
    found: dict[Key, Judgement] = {}
    for key, inferior_p, worse_p in zip(scores, inferior, worse, strict=True):
        outcome: Literal["non_inferior", "worse", "inconclusive"] = "inconclusive"
        if inferior_p <= 1 - confidence:
            outcome = "non_inferior"
        elif worse_p <= 1 - worse_confidence:
            outcome = "worse"
        found[key] = Judgement(outcome, worse_p=worse_p, inferior_p=inferior_p)
    return found


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction: adjusted p-values in the given order."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return tuple(adjusted)


def mcnemar(lost: int, gained: int) -> float:
    """Exact two-sided McNemar test on discordant cases (a binomial test); 1 where there are none."""
    if lost + gained == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + gained).pvalue)


def sign_flip(net_lost: Sequence[int]) -> float:
    """Exact one-sided p-value of a total net loss at least this large, each prompt's sign being a fair coin.

    The distribution of the sum of ±d is built prompt by prompt, so that it is exact for any number of them.
    """
    import numpy as np

    sizes = [abs(n) for n in net_lost if n]
    chances = np.ones(1)
    for size in sizes:
        wider = np.zeros(len(chances) + 2 * size)
        wider[: len(chances)] += chances / 2
        wider[2 * size :] += chances / 2
        chances = wider
    return float(min(1.0, chances[sum(net_lost) + sum(sizes) :].sum()))


def chance_below(values: Sequence[float], counts: Sequence[float], bound: float) -> float:
    """P(weighted mean of the values <= bound), weights uniform on the simplex, each value counting `counts` times.

    The mean is at most the bound where a weighted sum of gamma variables is at most 0; that is Imhof's integral
    (Biometrika 48, 1961), computed to about 1e-7, so that no draw of random numbers decides at a threshold.
    """
    import numpy as np
    from scipy.integrate import quad

    room = np.asarray(values, dtype=float) - bound
    if (room <= 0).all() or (room >= 0).all():
        return float((room <= 0).all())
    shapes = np.asarray(counts, dtype=float)
    room /= np.sqrt(shapes @ room**2)  # then the integrand lives near 0, however many prompts there are

    def integrand(u: float) -> float:
        angle = float(shapes @ np.arctan(room * u))
        return math.sin(angle) * math.exp(-0.5 * float(shapes @ np.log1p((room * u) ** 2))) / u

    above = 0.5 + float(quad(integrand, 0, math.inf, limit=500)[0]) / math.pi
    return min(1.0, max(0.0, 1.0 - above))


def floor_of(values: Sequence[float], counts: Sequence[float], confidence: float) -> float:
    """Gaffke's lower bound of the mean at this confidence: the values, and one prompt that lost everything (-1)."""
    from scipy.optimize import brentq

    values, counts = [*values, -1.0], [*counts, 1.0]
    best = max(values)
    if best == -1.0:
        return -1.0
    return float(brentq(lambda b: chance_below(values, counts, b) - (1 - confidence), -1.0, best, xtol=1e-6))


def _first_repeats(grades: Iterable[Grade]) -> dict[str, dict[str, bool]]:
    """ "task/prompt" to case name to passed, without cases that are `infra`; a conversation's turns are one prompt."""
    found: dict[str, dict[str, bool]] = {}
    for grade in grades:
        if grade.repeat == 0:
            cases = found.setdefault(f"{grade.task}/{conversation_of(grade.prompt)}", {})
            cases |= {c.case: c.outcome == "pass" for c in grade.cases if c.outcome != "infra"}
    return found


def _interval(differences: NDArray[np.float64], confidence: float, seed: int) -> tuple[float, float]:
    """Percentile bootstrap of the mean over prompts; -1 to 1 where there is but one prompt."""
    import numpy as np
    from scipy.stats import bootstrap

    if len(differences) < 2:
        return -1.0, 1.0
    if (differences == differences[0]).all():
        only, unseen = float(differences[0]), 1 - ((1 - confidence) / 2) ** (1 / len(differences))
        return only - (only + 1) * unseen, only + (
            1 - only
        ) * unseen  # `floor_of` has this form for one value
    found = bootstrap(
        (differences,),
        np.mean,
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        batch=BATCH,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)
