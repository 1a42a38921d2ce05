"""Threat: a run with a lot of text makes a page of gigabytes, or one that leaves out the place where answers part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reports.excerpts import NARROWEST, WIDEST, Shelf, cut, html_bytes


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(4, 600))
def test_the_window_holds_the_place(length: int, at: int, limit: int) -> None:
    at = min(at, length)
    text = "".join(chr(0x100 + i % 2000) for i in range(length))
    window = cut(text, at, limit)
    assert len(window.text) <= limit
    assert window.start <= at <= window.start + limit
    assert window.text == text[window.start : window.start + limit]
    assert window.left_out == length - len(window.text)


def test_the_windows_shrink_until_all_fit_and_none_is_dropped() -> None:
    shelf = Shelf(budget=200_000)
    places = [(i * 97) % 9_000 for i in range(100)]
    numbers = [shelf.put("." * at + "#" + "." * (10_000 - at), at) for at in places]
    found = [shelf.get(number) for number in numbers]
    assert sum(html_bytes(excerpt.text) for excerpt in found) <= 200_000
    assert all("#" in excerpt.text for excerpt in found)
    assert all(excerpt.total == 10_001 for excerpt in found)


def test_a_few_texts_stay_whole() -> None:
    shelf = Shelf()
    assert shelf.get(shelf.put("x" * WIDEST)).left_out == 0


def test_a_window_never_gets_narrower_than_is_of_use() -> None:
    shelf = Shelf(budget=1)
    assert len(shelf.get(shelf.put("x" * 10_000, 5_000)).text) == NARROWEST


def test_redacted_keeps_the_length_alone() -> None:
    shelf = Shelf(redact=True)
    excerpt = shelf.get(shelf.put("the secret answer"))
    assert (excerpt.text, excerpt.total, excerpt.redacted) == ("", 17, True)
