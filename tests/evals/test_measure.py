"""The threat: a wrong token is called a near-tie, or a margin is believed that the replay doesn't bear out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from evals.engine.replay_protocol import Measure
from evals.measure import CALIBRATE, Yardsticks, measure
from evals.replay import Logits, ReplayError, Source

VOCABULARY = 20
PROMPT = (1, 2, 3)


class Scripted:
    """A model whose next token is (last + 1) mod 20 by 5 nats, except where `ties` gives two tokens close together.

    ties: number of tokens so far → (better token, other token, gap at width 1, gap at any other width).
    """

    source: Source = "paged"

    def __init__(self, ties: dict[int, tuple[int, int, float, float]] | None = None) -> None:
        self.ties = ties or {}
        self.history: list[int] = []

    def start(self, prompt: Sequence[int]) -> Logits:
        self.history = []
        return self.step(prompt, len(prompt), width=1)[-1:]

    def step(self, tokens: Sequence[int], keep: int, width: int = 0) -> Logits:
        assert 0 < keep <= len(tokens)
        rows = []
        before = list(self.history)
        for token in tokens:
            self.history.append(token)
            rows.append(self._row(width or len(tokens)))
        self.history = [*before, *tokens[:keep]]
        return np.array(rows)

    def mark(self) -> list[int]:
        return list(self.history)

    def go_back(self, mark: list[int]) -> None:
        self.history = list(mark)

    def _row(self, width: int) -> np.ndarray:
        row = np.zeros(VOCABULARY)
        row[(self.history[-1] + 1) % VOCABULARY] = 5.0
        if len(self.history) in self.ties:
            better, other, narrow, wide = self.ties[len(self.history)]
            row[better], row[other] = 9.0, 9.0 - (narrow if width == 1 else wide)
        return row


def chain(start: int, n: int) -> list[int]:
    return [(start + i) % VOCABULARY for i in range(n)]


def order(
    base: Sequence[int], other: Sequence[int], steps: Sequence[int] = (), k: int = 1, prompt: int = 3
) -> Measure:
    return Measure(
        text="", prompt_tokens=prompt, base_ids=tuple(base), other_ids=tuple(other), other_steps=tuple(steps), k=k
    )  # fmt: skip


def test_a_near_tie_that_width_alone_flips() -> None:
    replay = Scripted({6: (7, 12, 0.01, -0.02)})
    base, other = [4, 5, 6, 7, 8, 9], [4, 5, 6, 12, 13, 14]
    measured = measure(replay, Yardsticks(), PROMPT, order(base, other, (1, 2, 2, 1)))
    assert (measured.token_index, measured.rank, measured.reproduced) == (3, 2, True)
    assert measured.gap == pytest.approx(0.01)
    assert measured.gap_at_verify_width == 0
    assert measured.movement == pytest.approx(0.03)
    assert measured.rescored_max_gap == pytest.approx(0.01)
    assert measured.rescored_max_gap_at == 3


def test_a_wrong_token_has_its_rank_and_gap_and_is_evidence() -> None:
    base, other = chain(4, 8), [4, 5, 15, 16, 17, 18, 19, 0]
    measured = measure(Scripted(), Yardsticks(), PROMPT, order(base, other, (1, 2, 2, 2, 1)))
    assert (measured.token_index, measured.gap, measured.gap_at_verify_width) == (2, 5.0, 5.0)
    assert measured.rank == 2
    assert measured.reproduced


def test_a_later_wrong_token_shows_in_the_re_scored_answer() -> None:
    replay = Scripted({6: (7, 12, 0.01, -0.02)})
    base, other = chain(4, 8), [4, 5, 6, 12, 13, 3, 4, 5]
    measured = measure(replay, Yardsticks(), PROMPT, order(base, other, (1, 2, 2, 2, 1)))
    assert (measured.gap, measured.rescored_max_gap, measured.rescored_max_gap_at) == (
        pytest.approx(0.01),
        5.0,
        5,
    )
    assert measured.rescored_max_rank == 2


def test_what_only_a_wide_step_shows_is_scored_again_by_steps_of_one() -> None:
    replay = Scripted({5: (6, 12, 0.01, 0.02), 9: (15, 16, 0.05, 3.0)})
    measured = measure(
        replay, Yardsticks(), PROMPT, order([4, 5, 6], [4, 5, 12, 13, 14, 15, 16, 17], (1, 2, 2, 2, 1))
    )
    assert (measured.rescored_max_gap, measured.rescored_max_gap_at) == (pytest.approx(0.05), 6)


def test_ties_share_a_rank() -> None:
    replay = Scripted({5: (6, 12, 0.0, 0.0)})
    measured = measure(replay, Yardsticks(), PROMPT, order(chain(4, 5), [4, 5, 12, 13, 14], (1, 2, 2)))
    assert (measured.rank, measured.gap, measured.reproduced) == (1, 0.0, True)


def test_a_replay_that_gives_other_tokens_than_plain_is_no_evidence() -> None:
    base, other = [4, 9, 10, 11, 12], [4, 9, 10, 17, 18]
    assert not measure(Scripted(), Yardsticks(), PROMPT, order(base, other, (1, 2, 2))).reproduced


def test_plains_own_token_at_the_divergence_must_be_reproduced_too() -> None:
    base, other = [4, 5, 9, 10], [4, 5, 15, 16]
    assert not measure(Scripted(), Yardsticks(), PROMPT, order(base, other, (1, 2, 1))).reproduced


def test_a_replay_that_gives_other_tokens_than_the_arm_is_no_evidence() -> None:
    replay = Scripted({5: (6, 12, 0.1, -0.1)})
    base, other = chain(4, 8), [4, 5, 6, 7, 8, 15, 16, 17]
    assert not measure(replay, Yardsticks(), PROMPT, order(base, other, (1, 2, 2, 2, 1))).reproduced


def test_the_noise_is_measured_over_whole_answers_by_width() -> None:
    ties = {n: (15, 16, 0.3, 0.3 + 0.001 * n) for n in range(4, 400)}
    base = [4] + [15] * 99
    other = [4] * 2 + [15] * 98
    yardsticks = Yardsticks()
    measured = measure(Scripted(ties), yardsticks, PROMPT, order(base, other, [1, *[2] * 49, 1]))
    assert 0.001 * 40 < measured.noise["p50"] < 0.001 * 70
    assert measured.noise["p50"] < measured.noise["p90"] < measured.noise["p99"] < measured.noise["max"]
    assert measured.noise["max"] <= 0.001 * 103 + 1e-9
    assert yardsticks.quantiles(5) == {}


def test_calibration_ends_once_there_are_enough_positions() -> None:
    yardsticks = Yardsticks()
    for _ in range(CALIBRATE // 50 + 2):
        measure(Scripted(), yardsticks, PROMPT, order(chain(4, 60), [*chain(4, 58), 3, 4], [1, *[2] * 29, 1]))
    assert yardsticks.enough(2)
    assert not yardsticks.enough(3)


def test_step_sizes_that_make_no_sense_are_replaced_by_full_steps() -> None:
    for steps in ((), (1, 9), (5,), (1, 1)):
        measured = measure(Scripted(), Yardsticks(), PROMPT, order(chain(4, 5), [4, 5, 6, 15, 16], steps))
        assert (measured.gap, measured.reproduced) == (5.0, True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (order(chain(4, 5), [4, 5, 99, 1]), "token ids below 20, found 99"),
        (order(chain(4, 5), [4, 5, -1, 1]), "token ids below 20"),
        (order(chain(4, 5), [4, 9], prompt=7), "expected 7 prompt tokens as decoded, found 3"),
        (order(chain(4, 5), chain(4, 5)), "found none"),
    ],
    ids=["outside", "negative", "prompt", "equal"],
)
def test_what_cannot_be_replayed_is_named(wrong: Measure, words: str) -> None:
    with pytest.raises(ReplayError, match=words):
        measure(Scripted(), Yardsticks(), PROMPT, wrong)
