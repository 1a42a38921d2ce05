"""Threat: garbage that is the same in both arms passes as identical; or an honest table, ruler or count is called a
loop."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from evals.loops import find_loop, repeated_ngram_share

STOP = 2


def test_token_zero_forever():
    """NaN logits: "0 differ", acceptance 1.0 (notes/openvino.md)."""
    loop = find_loop([0] * 200)
    assert (loop.start, loop.period, loop.copies, loop.share) == (0, 1, 200, 1.0)


def test_a_sentence_said_until_the_budget():
    start, sentence = list(range(100, 150)), list(range(200, 217))
    loop = find_loop(start + sentence * 5 + sentence[:4])
    assert (loop.start, loop.period, loop.copies) == (50, 17, 5)
    assert loop.share == pytest.approx(89 / 139)


def test_a_loop_longer_than_the_first_window():
    assert find_loop([7, *([1, 5, 3] * 5000)]).start == 1


def test_a_final_stop_does_not_hide_the_loop():
    assert find_loop([9, *([5] * 60), STOP], stop_ids={STOP}).start == 1
    assert find_loop([9, *([5] * 60), STOP]) is None


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [4],
        list(range(300)),
        [5] * 32,  # a ruler of dashes
        [8, 9] * 16,
        [i for n in range(40) for i in (100 + n, 10)],  # a count: the numbers differ
        [5] * 100 + [6],  # a ruler, and then it goes on
        list(range(300, 500)) + list(range(40)) * 3,  # three copies
    ],
)
def test_what_is_no_loop(ids):
    assert find_loop(ids) is None


@given(st.lists(st.integers(10, 13), max_size=60), st.integers(1, 9), st.integers(4, 40))
def test_a_loop_is_what_it_says(prefix, period, copies):
    ids = prefix + list(range(500, 500 + period)) * copies
    loop = find_loop(ids)
    if loop is None:
        assert period * (copies - 1) < 32
        return
    tail = ids[loop.start :]
    assert all(tail[i] == tail[i % loop.period] for i in range(len(tail)))
    assert loop.start <= len(prefix) and loop.copies >= 4


@given(st.lists(st.integers(0, 300_000), max_size=80), st.integers(2, 5))
def test_share_is_that_of_a_count_by_hand(ids, n):
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    expected = 1 - len(set(grams)) / len(grams) if grams else 0.0
    assert repeated_ngram_share(ids, n) == pytest.approx(expected)


def test_share_of_a_loop_and_of_a_permutation():
    assert repeated_ngram_share([1, 2, 3, 4] * 100) == pytest.approx(393 / 397)
    assert repeated_ngram_share([1, 2, 3, 4, 4, 3, 2, 1]) == 0.0
