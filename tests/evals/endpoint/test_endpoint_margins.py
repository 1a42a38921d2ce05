"""The threat: a number that is none (0.0 for a draft that was taken unseen) or another text's, read as a margin."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from evals.endpoint.margins import (
    MIN_PLACES,
    Place,
    ServedMargins,
    margin_at,
    movements,
    noise_of,
    parts_there,
    place,
)
from evals.endpoint.wire import TokenLogprob, Top
from evals.plan import Asked, Plan
from evals.types import Answer
from gate.margins import read_margin
from gate.policy import load_policy

BASE = Answer(
    arm="plain",
    task="t",
    prompt="p",
    repeat=0,
    prompt_sha256="",
    prompt_tokens=4,
    max_new_tokens=9,
    text="the cat sat",
)
OTHER = msgspec.structs.replace(BASE, arm="served", text="the dog sat")


def seen(token: str, **top: float) -> Place:
    return Place(token.encode(), {name.encode(): value for name, value in top.items()})


ONE = [seen("the", the=-0.1, a=-2.0), seen(" cat", **{" cat": -0.7, " dog": -0.8}), seen(" sat")]
TWO = [seen("the", the=-0.1, a=-2.1), seen(" dog", **{" cat": -0.75, " dog": -0.72}), seen(" sat")]


def test_a_draft_that_was_taken_over_unseen_has_no_number() -> None:
    assert place(TokenLogprob(token="x", logprob=0.0, top_logprobs=[])).top == {}
    assert (
        place(TokenLogprob(token="x", logprob=0.0, top_logprobs=[Top("y", -1.0), Top("z", -2.0)])).top == {}
    )
    for top in (
        [Top("x", 0.0), Top("y", 0.0)],
        [Top("x", 12.5), Top("y", 12.4)],
        [Top("x", 1e300), Top("y", 0.0)],
    ):
        assert place(TokenLogprob(token="x", logprob=0.0, top_logprobs=top)).top == {}, "no probabilities"
    real = place(
        TokenLogprob(token="x", logprob=-0.2, top_logprobs=[Top("x", -0.2), Top("é", -2.0, [195, 169])])
    )
    assert real.top == {b"x": -0.2, "é".encode(): -2.0}


def test_the_gap_is_plains_own() -> None:
    found = margin_at(BASE, OTHER, ONE, TWO, {"p99": 0.2})
    assert found is not None and found.reproduced and found.source == "server"
    assert (found.token_index, found.rank) == (1, 2)
    assert found.gap == pytest.approx(0.1) and found.movement == pytest.approx(0.13)


@pytest.mark.parametrize(
    ("base", "other", "one"),
    [
        (msgspec.structs.replace(BASE, text="a cat sat"), OTHER, ONE),
        (BASE, msgspec.structs.replace(OTHER, text="the bird"), ONE),
        (BASE, OTHER, [ONE[0], seen(" cat", **{" cat": -0.7, " cow": -0.8})]),
    ],
)
def test_another_text_or_an_unlisted_token_is_no_evidence(
    base: Answer, other: Answer, one: list[Place]
) -> None:
    found = margin_at(base, other, one, TWO, {"p99": 0.2})
    assert found is not None and not found.reproduced


def test_without_numbers_at_the_place_there_is_no_margin() -> None:
    assert margin_at(BASE, OTHER, [ONE[0], seen(" cat")], TWO, {}) is None
    assert margin_at(BASE, BASE, ONE, ONE, {}) is None


def test_noise_is_what_moved_between_the_servers_and_needs_places() -> None:
    assert list(movements(ONE, TWO)) == pytest.approx([0.1]), (
        "not where they part: that is to be excused by it"
    )
    assert noise_of([0.1] * (MIN_PLACES - 1)) == {}
    assert noise_of([0.1] * MIN_PLACES) == pytest.approx({"p50": 0.1, "p90": 0.1, "p99": 0.1, "max": 0.1})


@pytest.mark.parametrize(("gap", "nearness"), [(0.1, "near"), (0.9, "open"), (9.0, "open_wide")])
def test_a_server_can_show_a_near_tie_and_never_a_wrong_token(gap: float, nearness: str) -> None:
    found = margin_at(BASE, OTHER, ONE, TWO, {"p99": 0.2})
    assert found is not None
    reading = read_margin(msgspec.structs.replace(found, gap=gap), load_policy(None))
    assert reading is not None and reading.nearness == nearness
    silent = read_margin(msgspec.structs.replace(found, noise={}, gap=gap), load_policy(None))
    assert silent is not None and silent.nearness in ("open", "open_wide"), "no noise, no near-tie"
    nothing = msgspec.structs.replace(found, noise={}, movement=None, gap=gap)
    assert read_margin(nothing, load_policy(None)) is None


WORDS = {1: b"the", 2: b" cat", 3: b" dog", 4: b" sat", 5: b" c", 6: b"at", 7: b"<end>"}


@pytest.mark.parametrize(
    ("base", "served", "text", "there"),
    [
        ((1, 2, 4), (1, 3, 4), "the dog sat", True),
        ((1, 2, 4), (1, 5, 6, 3), "the cat dog", False),  # split otherwise before the texts part
        ((1, 2, 4), (1, 5, 3), "the c dog", True),
        ((1, 2, 7), (1, 2, 4), "the cat sat", True),  # plain ends there
        ((1, 2, 4), (1, 2), "the cat", False),  # no token stands against plain's
        ((1, 2, 4), (1, 3, 4), "The dog sat", False),  # ids that aren't the text's
    ],
)
def test_a_margin_is_measured_only_where_the_texts_part_by_a_token(
    base: tuple[int, ...], served: tuple[int, ...], text: str, there: bool
) -> None:
    said = b"".join(WORDS[i] for i in base if i != 7).decode()
    one = msgspec.structs.replace(BASE, ids=base, text=said)
    two = msgspec.structs.replace(OTHER, ids=served, text=text, ids_from="tokenizer")
    assert parts_there(one, two, WORDS.__getitem__) is there


def test_numbers_so_large_that_they_overflow_are_no_logprobs() -> None:
    huge = -1.7e308
    tops = [Top("a", 0.0), Top("b", huge)], [Top("a", huge), Top("b", 0.0)]
    one, two = (place(TokenLogprob(token="x", logprob=-0.1, top_logprobs=top)) for top in tops)
    assert one.top == two.top == {}
    far = seen("x", a=0.0, b=huge), seen("x", a=huge, b=0.0)
    found = list(movements([far[0], ONE[0]], [far[1], ONE[0]]))
    assert all(map(math.isfinite, found))


def test_a_record_of_a_prompt_that_is_not_planned_is_not_asked_again() -> None:
    strange = msgspec.structs.replace(BASE, prompt="gone"), msgspec.structs.replace(OTHER, prompt="gone")
    planned = Asked(task="t", prompt="p", text="hello", max_new_tokens=8)
    plan = Plan(model=Path("m"), arms=(), repeats={}, asked=(planned,), stop_ids=frozenset())
    measured = ServedMargins(plan, {}, "plain", [strange, (BASE, OTHER)])
    assert measured._questions() == [planned]
