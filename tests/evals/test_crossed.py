"""The threat: an answer that went to the wrong client is taken for the model's own; or two honest texts with a line in
common are taken for one."""

from __future__ import annotations

import pytest

from evals.crossed import PIECE, crossed, shifted

MINE = "The keeper lived above the valley. " + "".join(
    f"On day {n} it rained until noon. " for n in range(20)
)
OTHER = "def parse(text):\n" + "".join(f"    row_{n} = text.split(',')[{n}]\n" for n in range(20))
OTHERS = [("csv", "w1", OTHER)]


def test_another_prompts_answer_as_a_whole() -> None:
    found = crossed(OTHER, MINE, OTHERS)
    assert found is not None
    assert (found.task, found.prompt, found.how) == ("csv", "w1", "whole")


@pytest.mark.parametrize("start", [0, 40])
def test_it_goes_over_to_the_other_and_stays(start: int) -> None:
    found = crossed(MINE[:200] + OTHER[start:], MINE, OTHERS)
    assert found is not None
    assert (found.how, found.at) == ("tail", 200)


def test_it_goes_over_and_comes_back() -> None:
    found = crossed(MINE[:200] + OTHER[40 : 40 + PIECE + 20] + MINE[200:], MINE, OTHERS)
    assert found is not None
    assert (found.how, found.at) == ("piece", 200)


@pytest.mark.parametrize(
    "text",
    [
        MINE,
        MINE[:200] + "It was dry for once, and nobody knew why. " * 5,
        MINE[:200] + OTHER[40 : 40 + PIECE - 1],
        MINE[:200] + OTHER[40 : 40 + PIECE + 20] + "and so on " * 20,
        "",
    ],
)
def test_what_proves_nothing(text: str) -> None:
    assert crossed(text, MINE, OTHERS) is None


def test_an_other_that_was_due_as_well_proves_nothing() -> None:
    assert crossed(OTHER, MINE, [("csv", "w1", MINE)]) is None
    longer = MINE + OTHER[: PIECE * 2]
    assert crossed(MINE[:200] + OTHER[: PIECE * 2], longer, OTHERS) is None


def test_a_chunk_that_went_to_the_other_answer() -> None:
    lost = shifted(MINE[:100] + MINE[107:], MINE)
    received = shifted(OTHER[:50] + MINE[100:107] + OTHER[50:], OTHER)
    assert lost is not None
    assert received is not None
    assert (lost.more, lost.at, lost.chunk) == (False, 100, MINE[100:107])
    assert lost.went_to(received)
    assert not received.went_to(lost)
    other = shifted(OTHER[:50] + "another" + OTHER[50:], OTHER)
    assert other is not None
    assert not lost.went_to(other)


def test_a_chunk_that_begins_with_what_follows_it_is_known_by_its_rotation() -> None:
    lost, received = shifted("xyz", "xyabcdexyabcdez"), shifted("0abcdexyabcdexy1", "0abcdexy1")
    assert lost is None or received is None or not lost.went_to(received)  # other lengths
    lost, received = (
        shifted("--12--", "--1234561--".replace("1234561", "12345612")),
        shifted("a345612b", "ab"),
    )
    assert lost is not None
    assert received is not None
    assert lost.went_to(received)


@pytest.mark.parametrize("text", [MINE, MINE[:100] + MINE[103:], MINE[:100] + "!" + MINE[107:], OTHER])
def test_no_single_chunk(text: str) -> None:
    assert shifted(text, MINE) is None
