"""The threat: a prompt that is never in flight, or twice; batches that differ between arms; a load that isn't N."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.arms import build_arms
from evals.bases import alone, base_of, bases
from evals.batches import LoadError, batches, parse_concurrency, require_prompts, under_load
from evals.digest import ModelDigests

DIGESTS = ModelDigests(whole="w", target="t", head="h", files={})


def asked(*counts: int) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(task=f"t{task}", prompt=f"p{n}", after=None)
        for task, count in enumerate(counts)
        for n in range(count)
    ]


def conversation(turns: int, name: str = "talk") -> list[SimpleNamespace]:
    return [
        SimpleNamespace(task=name, prompt=f"p.{n}", after=f"p.{n - 1}" if n else None) for n in range(turns)
    ]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(1, 16), st.integers(0, 3))
def test_every_prompt_is_judged_once_and_none_is_twice_in_a_batch(
    counts: list[int], size: int, seed: int
) -> None:
    prompts = asked(*counts)
    found = batches(prompts, size, seed)
    judged = [place for b in found for place in b.places[: len(b.places) - b.fill]]
    assert sorted(judged) == list(range(len(prompts)))
    assert all(len(set(b.places)) == len(b.places) for b in found)
    if len(prompts) >= size:
        assert {len(b.places) for b in found} == {size}
    assert found == batches(prompts, size, seed)


def test_another_seed_is_another_order_and_tasks_mix() -> None:
    prompts = asked(8, 8)
    found = batches(prompts, 4, 1)
    assert found != batches(prompts, 4, 2)
    for batch in found:
        assert Counter(prompts[place].task for place in batch.places) == {"t0": 2, "t1": 2}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_later_turn_is_never_in_flight_before_its_conversation_got_there(size: int) -> None:
    prompts = [*conversation(3), *asked(3), *conversation(2, "other")]
    found = batches(prompts, size, 0)
    judged = [place for b in found for place in b.places[: len(b.places) - b.fill]]
    assert sorted(judged) == list(range(len(prompts)))
    batch_of = {
        (prompts[place].task, prompts[place].prompt): index
        for index, b in enumerate(found)
        for place in b.places[: len(b.places) - b.fill]
    }
    for one in prompts:
        if one.after is not None:
            assert batch_of[one.task, one.after] < batch_of[one.task, one.prompt]
    fills = [place for b in found for place in b.places[len(b.places) - b.fill :]]
    assert len(set(fills)) == len(fills)
    assert all(prompts[place].after is None for place in fills)
    assert all(len(set(b.places)) == len(b.places) for b in found)
    assert {len(b.places) for b in found[:-1]} == {size}


def test_arms_are_held_against_plain_under_the_same_load() -> None:
    arms = under_load(build_arms(DIGESTS), (1, 4), seed=7)
    assert [a.name for a in arms] == ["plain", "mtp@1", "plain/n4", "mtp@1/n4"]
    assert bases(arms) == {"plain": "plain", "mtp@1": "plain", "plain/n4": "plain/n4", "mtp@1/n4": "plain/n4"}
    assert len({a.identity() for a in arms}) == 4
    assert alone(arms, arms[2]) == arms[0]
    assert alone(arms, arms[0]) is None
    assert base_of([a for a in arms if a.concurrency == 1], arms[3]) is None


def test_another_draw_of_batches_is_another_arm() -> None:
    one, other = (under_load(build_arms(DIGESTS), (4,), seed)[0] for seed in (0, 1))
    assert one.identity() != other.identity()


def test_what_can_not_be_in_flight_is_refused() -> None:
    assert parse_concurrency(()) == (1,)
    assert parse_concurrency((4, 1, 4)) == (4, 1)
    for n in (0, -1, 257):
        with pytest.raises(LoadError, match=f"--concurrency {n}: expected from 1 to 256"):
            parse_concurrency((n,))
    with pytest.raises(LoadError, match="expected at least 8 prompts, found 5"):
        require_prompts((1, 8), 5)
