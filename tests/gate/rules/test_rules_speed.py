"""The threat: a head that is faster on short prompts and slower on those that people send."""

from __future__ import annotations

import pytest


def depths(scene, ratios):
    """Three prompts per depth; ratios: prompt tokens to the arm's speed by plain's."""
    prompts = [f"d{depth}-{i}" for depth in ratios for i in range(3)]
    scene.add_task("deep", prompts=prompts)
    for depth, ratio in ratios.items():
        for i in range(3):
            for arm, seconds in (("plain", 2.0), ("mtp@1", 2.0 / ratio)):
                scene.change(f"d{depth}-{i}", task="deep", arm=arm, prompt_tokens=depth, decode_s=seconds)


def test_slower_is_a_note_and_not_worth_it(scene):
    scene.change_all(decode_s=2.5)
    verdict = scene.verdict()
    assert scene.codes() == {"slower-than-plain": "note"}
    assert verdict.worth_it is False
    assert verdict.tasks[0].speed_ratio == pytest.approx(0.8)


def test_slower_by_no_more_than_chance_is_neither_worth_it_nor_not(scene):
    prompts = [f"p{i}" for i in range(9)]
    scene.add_task("many", prompts=prompts)
    del scene.tasks["csv"]
    for ratios, worth in (
        ((0.7, 0.8, 0.9, 0.95, 0.98, 1.05, 1.1, 1.2, 1.3), None),
        ((0.7, 0.71, 0.72, 0.73, 0.8, 0.81, 0.82, 0.83, 0.84), False),
        ((0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5), True),
    ):
        for prompt, ratio in zip(prompts, ratios, strict=True):
            scene.change(prompt, task="many", decode_s=2.0 / ratio)
        verdict = scene.verdict()
        assert verdict.worth_it is worth
        assert ("slower-than-plain" in scene.codes()) is (worth is False)
        assert ("isn't worth it" in verdict.what_to_do) is (worth is False)


@pytest.mark.parametrize(
    ("ratios", "worth"),
    [((0.9, 0.95, 0.97, 0.99), False), ((0.9, 0.95, 0.97, 1.2), None), ((0.9, 1.1, 1.2, 1.3), True)],
)
def test_so_few_prompts_are_slower_where_each_of_them_is(scene, ratios, worth):
    for prompt, ratio in zip(("w1", "w2", "w3", "w4"), ratios, strict=True):
        scene.change(prompt, decode_s=2.0 / ratio)
    assert scene.verdict().worth_it is worth
    assert ("slower-than-plain" in scene.codes()) is (worth is False)


def test_faster_short_and_slower_long_is_served_up_to_a_depth(scene):
    """openvino.genai#4483: 3.4 times faster at 512 tokens, 3.1 times slower at 98K."""
    depths(scene, {512: 3.4, 4096: 1.2, 98304: 0.32})
    verdict = scene.verdict()
    assert (verdict.decision, verdict.reasons) == ("serve_with_limits", ("slower-at-depth",))
    assert verdict.tasks[1].limits == {"depth": 4096}
    assert "within the limits named" in verdict.sentence


def test_slower_everywhere_is_no_limit(scene):
    depths(scene, {512: 0.9, 98304: 0.3})
    assert scene.verdict().decision == "serve"


def test_depths_that_recover_are_still_limited_to_the_first_loss(scene):
    depths(scene, {500: 1.5, 5000: 0.8, 50000: 1.1})
    assert scene.verdict().tasks[1].limits == {"depth": 500}


def test_prompts_of_about_one_length_say_nothing_of_depth(scene):
    depths(scene, {500: 1.5, 900: 0.5})
    assert scene.verdict().tasks[1].limits == {}


def test_the_ratio_is_paired_by_prompt(scene):
    for prompt, plain, arm in (("w1", 1.0, 0.5), ("w2", 10.0, 8.0), ("w3", 4.0, 4.0), ("w4", 2.0, 1.0)):
        scene.change(prompt, arm="plain", decode_s=plain)
        scene.change(prompt, decode_s=arm)
    assert scene.verdict().tasks[0].speed_ratio == pytest.approx((1.25 + 2.0) / 2)


def test_a_depth_that_is_slower_by_no_more_than_chance_limits_nothing(scene):
    depths(scene, {512: 1.1, 98304: 0.9})
    scene.change("d98304-0", task="deep", decode_s=1.9)
    assert scene.verdict().decision == "serve"
    depths(scene, {512: 1.1, 4096: 0.97, 98304: 0.3})
    scene.change("d4096-0", task="deep", decode_s=1.9)
    verdict = scene.verdict()
    assert verdict.tasks[1].limits == {"depth": 4096}
    assert "up to 4096 tokens it is hardly slower (0.97)" in next(
        f.message for f in verdict.findings if f.code == "slower-at-depth"
    )
