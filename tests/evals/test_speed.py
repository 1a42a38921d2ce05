"""Threat: a head is called faster (or slower) by comparing different prompts, by counting the prompt's own time, or by
noise that nobody put an interval around."""

import numpy as np
import pytest
from scipy import stats

from evals.speed import decode_rate, median_interval, paired_speed
from evals.types import Answer, Failure


def answer(prompt, seconds, tokens=101, repeat=0, arm="plain", **fields):
    steps = (1,) * tokens
    return Answer(
        **{
            "arm": arm, "task": "t", "prompt": prompt, "repeat": repeat, "prompt_sha256": "0", "prompt_tokens": 10,
            "max_new_tokens": 999, "ids": tuple(range(tokens)), "steps": steps, "decode_s": seconds, "ttft_s": 50.0,
            **fields,
        }
    )  # fmt: skip


def test_rate_leaves_the_first_step_and_its_time_out():
    assert decode_rate(answer("p", 2.0)) == 50.0
    assert decode_rate(answer("p", 2.0, steps=(3, 98))) == 49.0
    assert decode_rate(answer("p", 2.0, steps=())) == 50.0


@pytest.mark.parametrize(
    "bad",
    [
        answer("p", None),
        answer("p", 0.0),
        answer("p", 1.0, tokens=1),
        answer("p", 1.0, failure=Failure("crash", "gone")),
    ],
    ids=["no time", "zero time", "one token", "crash"],
)
def test_a_rate_that_was_not_measured_is_unknown(bad):
    assert decode_rate(bad) is None
    assert paired_speed([bad], [answer("p", 1.0)]) is None


def test_each_prompt_is_compared_with_itself():
    """The mean rates say 'slower', since the arm lacks the quick prompt; each prompt says twice as fast."""
    base = [answer("quick", 0.1), answer("slow", 4.0), answer("slower", 8.0)]
    arm = [answer("slow", 2.0), answer("slower", 4.0), answer("other", 99.0)]
    speed = paired_speed(base, arm)
    assert speed.ratio == 2.0 and speed.prompts == 2
    assert speed.by_prompt == {"t/slow": 2.0, "t/slower": 2.0}
    assert (speed.low, speed.high) == (None, None)


def test_repeats_count_by_their_median_and_probes_not_at_all():
    base = [answer("p", s, repeat=i) for i, s in enumerate([1.0, 1.0, 77.0])]
    arm = [answer("p", 0.5), answer("p", 0.001, probe="state")]
    assert paired_speed(base, arm).ratio == 2.0


def test_interval_is_scipys_bootstrap_and_holds_the_truth():
    rng = np.random.default_rng(3)
    times = rng.lognormal(0, 0.3, 40)
    gains = rng.lognormal(np.log(1.3), 0.1, 40)
    base = [answer(str(i), t) for i, t in enumerate(times)]
    arm = [answer(str(i), t / g) for i, (t, g) in enumerate(zip(times, gains, strict=True))]
    speed = paired_speed(base, arm, confidence=0.9)
    by_hand = stats.bootstrap(
        (np.array([speed.by_prompt[k] for k in sorted(speed.by_prompt)]),), np.median, confidence_level=0.9,
        method="percentile", n_resamples=20000, rng=np.random.default_rng(9),
    ).confidence_interval  # fmt: skip
    assert speed.low == pytest.approx(by_hand.low, abs=0.01)
    assert speed.high == pytest.approx(by_hand.high, abs=0.01)
    assert speed.low < 1.3 < speed.high
    assert paired_speed(base, arm, confidence=0.9) == speed
    assert median_interval(list(speed.by_prompt.values())[:4], 0.9) is None
