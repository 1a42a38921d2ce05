"""Threat: a user is told that so many prompts would settle it, runs them, and it isn't settled."""

import numpy as np
import pytest
from scipy import stats

from evals.power import losing_prompts_needed, prompts_to_call, prompts_to_settle, smallest_prompts
from evals.statistics import PromptPair, compare_scores, judge


def scored(differences, margin=0.05):
    """Prompts of ten cases, each with this many cases lost."""
    return compare_scores(
        [
            PromptPair(str(i), (True,) * 10, (True,) * (10 - lost) + (False,) * lost)
            for i, lost in enumerate(differences)
        ],
        margin,
    )


@pytest.mark.parametrize(
    ("margin", "confidence", "prompts"), [(0.05, 0.95, 59), (0.1, 0.95, 29), (0.1, 0.99, 44)]
)
def test_smallest_number_of_prompts_without_a_loss(margin, confidence, prompts):
    """59 is the rule of three's well-known number (3 / 0.05, exactly)."""
    assert smallest_prompts(margin, confidence) == prompts
    assert (1 - margin) ** prompts <= 1 - confidence < (1 - margin) ** (prompts - 1)


def test_losing_prompts_needed_is_what_the_sign_flip_test_asks_for():
    assert losing_prompts_needed(0.99) == 7 and losing_prompts_needed(0.95) == 5
    for losing, outcome in ((6, "inconclusive"), (7, "worse")):
        assert judge({0: scored([10] * losing + [0] * 20)})[0].outcome == outcome


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 1.0])
def test_prompts_to_call_is_the_smallest_with_the_power(share):
    n = prompts_to_call(share)
    assert stats.binom.sf(6, n, share) >= 0.9
    assert n == 7 or stats.binom.sf(6, n - 1, share) < 0.9


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="share of losing prompts"):
        prompts_to_call(share)


def test_without_a_loss_the_smallest_number_settles_it():
    assert prompts_to_settle(scored([0] * 10)) == 59
    assert judge({0: scored([0] * 60)})[0].outcome == "non_inferior"


def test_a_loss_at_the_margin_is_settled_as_a_loss():
    seen = scored([1, 0] * 10)
    assert judge({0: seen})[0].outcome == "worse"
    assert prompts_to_settle(scored([1, 0, 1, 0])) == prompts_to_call(0.5)


def test_nothing_is_foreseeable_where_nothing_would_change():
    """One prompt, worse than the margin: no spread and no number."""
    even = compare_scores(
        [PromptPair("a", (True,) * 10, (False,) * 10), PromptPair("b", (False,) * 10, (True,) * 10)], 0.0005
    )
    assert even.difference == 0 and prompts_to_settle(even) is None


def test_the_number_settles_it_nine_times_in_ten():
    """Prompts like those seen: a tenth lose a case and a tenth gain one."""

    def draw(rng, n):
        return [
            PromptPair(str(i), (True,) * 9 + (x < 0.9,), (True,) * 9 + (x >= 0.1,))
            for i, x in enumerate(rng.random(n))
        ]  # fmt: skip

    pairs = [PromptPair(str(i), (True,) * 9 + (i != 0,), (True,) * 9 + (i != 9,)) for i in range(10)]
    n = prompts_to_settle(compare_scores(pairs, 0.05))
    rng = np.random.default_rng(4)
    settled = sum(
        judge({0: compare_scores(draw(rng, n), 0.05)})[0].outcome != "inconclusive" for _ in range(60)
    )
    assert settled >= stats.binom.ppf(0.001, 60, 0.9)
