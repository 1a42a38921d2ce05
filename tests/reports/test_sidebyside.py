"""Threat: the page shows another text than the model gave, or marks the wrong place as the first difference."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from evals.types import Divergence
from reports.excerpts import Excerpt, cut
from reports.sidebyside import MOST_LINES, Block, blocks

LINES = st.text(st.sampled_from("ab\n\r "), max_size=60)


def whole(text: str) -> Excerpt:
    return Excerpt(text, 0, len(text))


def said(rows: list[Block], side: str) -> str:
    parts = [getattr(row, side) for row in rows]
    return "".join(part.before + part.mark + part.after for part in parts)


def tokens(base: str, other: str, before: str = "") -> Divergence:
    return Divergence(1, len(before.encode()), 1, 2, base, other, before, base, other)


@given(LINES, LINES)
@example("a\n" * 30 + "x", "a\n" * 30 + "y")
def test_both_sides_are_shown_whole(base: str, other: str) -> None:
    rows = blocks(whole(base), whole(other))
    assert (said(rows, "left"), said(rows, "right")) == (base, other)
    for row in rows:
        if row.kind != "changed":
            assert row.left.before + row.left.mark + row.left.after == (
                row.right.before + row.right.mark + row.right.after
            )


@given(LINES, LINES)
@example("a", "a\na")
def test_each_side_is_marked_once_or_said_to_end(base: str, other: str) -> None:
    rows = blocks(whole(base), whole(other))
    for side in ("left", "right"):
        signs = [bool(getattr(row, side).mark) + getattr(row, side).ended for row in rows]
        assert sum(signs) == (0 if base == other else 1)


@given(LINES, LINES)
def test_what_precedes_the_mark_is_equal(base: str, other: str) -> None:
    rows = blocks(whole(base), whole(other))
    before = {}
    for side in ("left", "right"):
        text = ""
        for row in rows:
            part = getattr(row, side)
            text += part.before
            if part.mark or part.ended:
                break
            text += part.after
        before[side] = text
    assert before["left"] == before["right"]


def test_the_tokens_are_marked_though_they_begin_alike() -> None:
    rows = blocks(whole("say  the word"), whole("say  then stop"), tokens(" the", " then"))
    assert (rows[0].left.mark, rows[0].right.mark) == (" the", " then")


def test_a_token_that_is_not_there_is_not_believed() -> None:
    rows = blocks(whole("abc"), whole("abd"), tokens("zzz", "yyy"))
    assert (rows[0].left.mark, rows[0].right.mark) == ("c", "d")


def test_an_answer_that_ends_where_the_other_goes_on() -> None:
    (row,) = blocks(whole("one"), whole("one two"))
    assert row.left.ended
    assert row.right.mark == " "


def test_the_middle_of_a_long_equal_run_is_folded() -> None:
    base = "x\n" + "same\n" * 40 + "y\n"
    rows = blocks(whole(base), whole(base.replace("x", "z").replace("y", "w")))
    assert [row.kind for row in rows] == ["changed", "same", "folded", "same", "changed"]
    assert rows[2].lines == 34


def test_a_place_deep_in_the_text_is_found_in_unequal_windows() -> None:
    base = "".join(f"line {i}\n" for i in range(2000))
    other = base.replace("line 1500", "LINE 1500")
    at = base.index("line 1500")
    rows = blocks(cut(base, at, 8000), cut(other, at, 500))
    changed = [row for row in rows if row.kind == "changed"]
    assert (changed[0].left.mark, changed[0].right.mark) == ("l", "L")


def test_unrelated_long_texts_are_one_changed_block() -> None:
    base, other = (f"{c}\n" * (MOST_LINES + 5) for c in "ab")
    assert [row.kind for row in blocks(whole(base), whole(other))] == ["changed"]
