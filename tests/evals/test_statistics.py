"""Threat: chance is called a loss, or a loss chance: by taking a prompt's ten cases for ten independent ones, by an
interval of width zero over prompts that all passed, or by testing many tasks without saying so.

Checked against scipy and statsmodels, and against the worst case (Clopper-Pearson)."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

from evals.statistics import (
    PromptPair,
    chance_below,
    compare_scores,
    holm,
    judge,
    mcnemar,
    pairs_of,
    sign_flip,
)
from evals.types import CaseGrade, Grade


def pair(base, arm, name="p"):
    return PromptPair(name, tuple(c == "1" for c in base), tuple(c == "1" for c in arm))


def grade(prompt, outcomes, arm="plain", repeat=0):
    cases = tuple(CaseGrade(name, outcome) for name, outcome in outcomes.items())
    return Grade(arm, "t", prompt, repeat, cases)


def test_cases_are_paired_by_name_and_machine_trouble_is_left_out():
    base = [
        grade("p", {"a": "pass", "b": "fail", "c": "infra"}),
        grade("p", {"a": "fail", "b": "fail", "c": "fail"}, repeat=1),
        grade("only base", {"a": "pass"}),
        grade("trouble", {"a": "infra"}),
    ]
    arm = [
        grade("p", {"c": "pass", "b": "pass", "a": "crash"}),
        grade("trouble", {"a": "pass"}),
        grade("only arm", {"a": "pass"}),
    ]
    assert pairs_of(base, arm) == (PromptPair("t/p", (True, False), (False, True)),)


def test_counts_and_scores():
    score = compare_scores([pair("1111", "1100"), pair("0011", "0111"), pair("1010", "1010")], margin=0.1)
    assert (score.prompts, score.cases, score.lost, score.gained, score.losing_prompts) == (3, 12, 2, 1, 1)
    assert score.base_score == pytest.approx(8 / 12) and score.arm_score == pytest.approx(7 / 12)
    assert score.difference == pytest.approx(score.arm_score - score.base_score)
    assert score.low <= score.difference <= score.high and score.floor < score.difference


def test_nothing_to_compare_is_none_and_not_zero():
    assert compare_scores([], margin=0.1) is None
    assert judge({}) == {}


@pytest.mark.parametrize("bad", [{"margin": 0.0}, {"margin": 1.0}, {"margin": 0.1, "confidence": 95.0}])
def test_numbers_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match="above 0 and below 1"):
        compare_scores([pair("1", "1")], **bad)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_statsmodels(lost, gained):
    theirs = statsmodels_mcnemar([[5, lost], [gained, 5]], exact=True).pvalue if lost + gained else 1.0
    assert mcnemar(lost, gained) == pytest.approx(theirs)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-10, 10), min_size=1, max_size=9))
def test_sign_flip_is_scipys_permutation_test(net):
    if len(net) == 1:  # scipy wants two
        net = [*net, 0]
    theirs = stats.permutation_test(
        (np.array(net),), np.sum, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert sign_flip(net) == pytest.approx(theirs.pvalue)


def test_sign_flip_counts_prompts_and_not_cases():
    """Ten cases lost in one prompt are one loss (p = 1/2), where McNemar says 0.002."""
    assert sign_flip([10, 0, 0]) == 0.5 and mcnemar(10, 0) == pytest.approx(2 / 1024)
    assert sign_flip([1] * 7) == 2**-7
    assert sign_flip([]) == sign_flip([0, 0]) == 1.0
    assert sign_flip([-3, -1]) == 1.0
    assert sign_flip([7] * 500) == pytest.approx(2**-500)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_statsmodels(p):
    assert holm(p) == pytest.approx(tuple(multipletests(p, method="holm")[1]))


def test_holm_of_nothing():
    assert holm([]) == ()


@pytest.mark.parametrize(("n", "k"), [(10, 0), (40, 0), (40, 3), (100, 10), (7, 7)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_floor_is_clopper_pearson_where_prompts_are_lost_whole(n, k, confidence):
    pairs = [pair("11", "00")] * k + [pair("11", "11")] * (n - k)
    upper = stats.beta.ppf(confidence, k + 1, n - k) if k < n else 1.0
    assert compare_scores(pairs, 0.05, confidence).floor == pytest.approx(-upper, abs=1e-5)


def test_prompts_without_a_loss_prove_nothing_until_there_are_enough():
    """The bootstrap's interval would be [0, 0] over three prompts already; the floor knows better."""
    few = compare_scores([pair("11", "11")] * 3, margin=0.05)
    assert few.floor < -0.5
    assert few.high == -few.low == pytest.approx(stats.beta.ppf(0.975, 1, 3), abs=1e-5)
    lost = compare_scores([pair("11", "10")] * 3, margin=0.05)
    assert -1 < lost.low < lost.difference == -0.5 < lost.high < 1
    assert compare_scores([pair("11", "00")] * 3, margin=0.05).low == -1.0
    assert judge({0: few})[0].outcome == "inconclusive"
    assert judge({0: compare_scores([pair("11", "11")] * 70, margin=0.05)})[0].outcome == "non_inferior"


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.sampled_from([-1.0, -0.4, -0.1, 0.0, 0.2, 1.0]), min_size=1, max_size=40),
    st.floats(-0.9, 0.9),
)
def test_imhofs_integral_is_what_random_weights_give(differences, bound):
    values, counts = np.unique([*differences, -1.0], return_counts=True)
    weights = np.random.default_rng(1).dirichlet(np.ones(len(differences) + 1), size=20_000)
    drawn = np.mean(weights @ np.array([*differences, -1.0]) <= bound)
    assert chance_below(values, counts, bound) == pytest.approx(drawn, abs=0.02)


@pytest.mark.parametrize("n", [3, 59, 20_000])
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("bound", [-0.5, -0.05, -0.001])
def test_imhofs_integral_is_the_beta_distribution_of_two_values(n, k, bound):
    expected = stats.beta.sf(-bound, k + 1, n - k) if n > k else 1.0
    assert chance_below([-1.0, 0.0], [k + 1, n - k], bound) == pytest.approx(expected, abs=1e-6)


def test_floor_covers_a_loss_that_strikes_whole_prompts():
    """At a true loss as large as the margin, non-inferior may be said one time in twenty."""
    rng, said, runs = np.random.default_rng(5), 0, 2000
    for k, times in zip(*np.unique(rng.binomial(60, 0.1, size=runs), return_counts=True), strict=True):
        said += times * (chance_below([-1.0, 0.0], [k + 1, 60 - k], -0.1) <= 0.05)
    assert said <= stats.binom.ppf(0.9999, runs, 0.05)


def test_interval_is_scipys_over_prompts():
    rng = np.random.default_rng(2)
    pairs = [PromptPair(str(i), (True,) * 10, tuple(map(bool, rng.random(10) > 0.2))) for i in range(50)]
    score = compare_scores(pairs, 0.05, confidence=0.9)
    by_hand = stats.bootstrap(
        (np.array([p.difference for p in pairs]),),
        np.mean,
        confidence_level=0.9,
        method="percentile",
        rng=rng,
    ).confidence_interval
    assert (score.low, score.high) == (
        pytest.approx(by_hand.low, abs=0.01),
        pytest.approx(by_hand.high, abs=0.01),
    )
    assert compare_scores(pairs, 0.05, confidence=0.9) == score


def test_one_prompt_has_no_interval_worth_the_name():
    score = compare_scores([pair("1111", "0000")], margin=0.1)
    assert (score.low, score.high) == (-1.0, 1.0)
    assert judge({0: score})[0].outcome == "inconclusive"


def test_a_clear_loss_is_worse_and_a_small_one_within_the_margin_is_not():
    clear = compare_scores([pair("1" * 10, "1" * 5 + "0" * 5)] * 20, margin=0.05)
    small = compare_scores([pair("1" * 50, "1" * 49 + "0")] * 80, margin=0.1)
    assert judge({"t": clear})["t"].outcome == "worse"
    assert small.worse_p < 0.01 and judge({"t": small})["t"].outcome == "non_inferior"


def test_several_scores_are_corrected_for_their_number():
    loss = compare_scores([pair("11", "00")] * 7 + [pair("11", "11")] * 10, margin=0.05)
    none = compare_scores([pair("11", "11")] * 5, margin=0.05)
    assert judge({0: loss})[0].outcome == "worse"
    many = judge({0: loss, **dict.fromkeys(range(1, 9), none)})
    assert many[0].outcome == "inconclusive" and many[0].worse_p == pytest.approx(9 * 2**-7)


BITS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6)


@settings(deadline=None, max_examples=40)
@given(st.lists(BITS, min_size=1, max_size=12))
def test_any_score_keeps_its_bounds(prompts):
    pairs = [
        PromptPair(str(i), tuple(b for b, _ in p), tuple(a for _, a in p)) for i, p in enumerate(prompts)
    ]
    s = compare_scores(pairs, margin=0.1)
    assert -1 <= s.floor <= s.difference + 1e-9 and -1 <= s.low <= s.high <= 1
    assert all(0 <= p <= 1 for p in (s.mcnemar_p, s.worse_p, s.inferior_p))
    swapped = compare_scores([PromptPair(p.prompt, p.arm, p.base) for p in pairs], margin=0.1)
    assert (swapped.lost, swapped.gained) == (s.gained, s.lost)
    assert swapped.difference == pytest.approx(-s.difference) and swapped.mcnemar_p == pytest.approx(
        s.mcnemar_p
    )
