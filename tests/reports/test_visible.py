"""Threat: a model's text hides something from its reader (escape sequences, bidi overrides, NULs), or breaks out of
the page it is shown in."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reports.visible import marked, one_line, visible

ANYTHING = st.text(st.characters(), max_size=60)
"""Every code point, lone surrogates included."""


DRAWN = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Format characters that have a shape of their own (signs that span Arabic, Syriac and Kaithi numbers)."""


def test_no_invisible_character_is_left() -> None:
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    points = [point for point in range(0x110000) if unicodedata.category(chr(point)) in bad]
    left = {point for point in points if visible(chr(point)) == chr(point)}
    assert left == {ord("\n"), ord("\t")} | DRAWN


@given(ANYTHING)
def test_what_is_shown_can_be_written_as_utf8(text: str) -> None:
    visible(text).encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b", "a⟨NUL⟩b"),
        ("\x1b[31mred", "⟨ESC⟩[31mred"),
        ("user\u202egnp.exe", "user⟨U+202E⟩gnp.exe"),
        ("\ud800", "⟨U+D800⟩"),
        ("a\r\nb", "a⟨CR⟩\nb"),
        ("a\u200bb\ufeff", "a⟨U+200B⟩b⟨U+FEFF⟩"),
        ("a\u2028b\x85c", "a⟨U+2028⟩b⟨U+0085⟩c"),
        ("non\xa0breaking", "non⟨U+00A0⟩breaking"),
        ("größe 日本語 ünï 🙂", "größe 日本語 ünï 🙂"),
    ],
)
def test_each_has_its_sign(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(ANYTHING, ANYTHING)
def test_different_texts_look_different_unless_signs_are_written_out(a: str, b: str) -> None:
    if a != b and not {"⟨", "⟩"} & set(a + b):
        assert visible(a) != visible(b)


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert [name for name, _ in attrs] == ["class", "title"]
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")


@example("<script>alert(1)</script>\x00<script>alert(2)</script>\u202e<b>x")
@given(st.text(st.sampled_from("<>&\"'/!-=[] scriptonload\x00\u202e\n"), max_size=80))
def test_markup_is_only_text(text: str) -> None:
    seen = _Seen()
    seen.feed(str(marked(text)))
    seen.close()
    assert set(seen.tags) <= {"i"}
    assert seen.text == visible(text)


@given(ANYTHING, st.integers(2, 80))
def test_one_line_is_one_line_of_at_most_that_length(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.splitlines() == ([line] if line else [])
