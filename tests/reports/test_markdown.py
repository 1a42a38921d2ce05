"""Threat: a summary that GitHub refuses for its length, or in which a model's words make a link, mention or markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from evals.types import Failure
from reports.markdown import LIMIT, code, escaped, fence, render
from reports.telling import most_telling

HOSTILE = (
    "![x](http://evil.example/p.png) <img src=x> **bold** @octocat #1 | `a` ``b`` [l](javascript:x) </details> "
    "https://evil.example www.evil.example ping@evil.example :tada: GH-1 ~~s~~ $x$ \x1b\u202e ```\n# head\n- item"
)


def parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"linkify": False, "html": True})


def tokens(text: str) -> list[Any]:
    found = []
    for token in parser().parse(text):
        found += [token, *(token.children or [])]
    return found


def poisoned(run: Any, text: str) -> Any:
    renamed = msgspec.structs.replace
    run.comparisons = [
        renamed(
            c,
            divergence=c.divergence
            and renamed(c.divergence, before=text, base_after=text, other_after=text, base_token_text=text),
        )
        for c in run.comparisons
    ]
    run.grades = [
        renamed(g, cases=tuple(renamed(c, observed=text) if c.outcome != "pass" else c for c in g.cases))
        for g in run.grades
    ]
    run.verdict = renamed(
        run.verdict,
        model=text,
        sentence=text,
        what_to_do=text,
        caveats=(text,),
        tasks=tuple(renamed(t, reasons=(text,)) for t in run.verdict.tasks),
        findings=tuple(renamed(f, code=text, message=text) for f in run.verdict.findings),
    )
    return run


def test_it_says_the_verdict_the_table_and_the_three_most_telling_differences(run: Any) -> None:
    said = render(run.view())
    assert said.startswith("## ❌ Do not serve")
    assert (
        "| `csv` | `mtp@1` | ❌ Do not serve | 3/4 | 20/20 → 18/20 | 90.0% | 1.31× | `case-lost`, `new-crash` |"
        in said
    )
    summaries = re.findall(r"<summary>(.*?)</summary>", said)
    assert summaries == [
        "csv, w2: mtp@1 differs from token 63, 2 cases lost",
        "prose, w1: mtp@1, control@1 differs from token 8",
        "prose, w3: mtp@1, control@1 differs from token 8",
    ]
    assert "[['say hi']]" in said


def test_a_lost_case_tells_more_than_a_missing_answer_and_that_more_than_a_wide_margin(run: Any) -> None:
    run.margins = [msgspec.structs.replace(m, gap=9.0 if m.prompt == "w3" else 0.01) for m in run.margins]
    gone = next(a for a in run.answers if (a.arm, a.task, a.prompt) == ("mtp@1", "prose", "w4"))
    failure = Failure("hang", "silent for 60 s")
    run.answers[run.answers.index(gone)] = msgspec.structs.replace(gone, text="", ids=(), failure=failure)
    order = [prompt.id for _, prompt, _ in most_telling(run.view(), 3)]
    assert order == ["w2", "w4", "w3"]


def test_a_models_words_make_nothing_but_text(make_run: Callable[[], Any]) -> None:
    kinds = {token.type for token in tokens(render(make_run().view()))}
    html = {token.content for token in tokens(render(make_run().view())) if token.type.startswith("html")}
    said = render(poisoned(make_run(), HOSTILE).view())
    found = tokens(said)
    assert {token.type for token in found} - kinds <= {"text_special"}
    assert not {"link_open", "image", "s_open", "em_open"} & {token.type for token in found}
    ours = re.compile(r"</?(details|summary|sub)>|<details><summary>[^<]*</summary>\s*")
    assert all(ours.fullmatch(t.content.strip()) for t in found if t.type.startswith("html")), html
    inline = [token.children or [] for token in found if token.type == "inline"]
    outside = "\n".join("".join(t.content for t in line if t.type.startswith("text")) for line in inline)
    assert "octocat" in outside
    assert not re.search(r"(?<!\w)@octocat|(?<!\w)#1|://evil|www\.evil|ping@evil\.|:tada:", outside)
    assert not {"\x1b", "\u202e"} & set(said)


@given(st.text(st.sampled_from("`| \\ab\n*<"), max_size=30))
def test_a_code_span_holds_exactly_its_text(text: str) -> None:
    span = code(text)
    (paragraph,) = [t for t in parser().parse(f"| {span} | x |\n|---|---|\n") if t.type == "inline"][:1]
    children = [t for t in paragraph.children or [] if t.content]
    assert [t.type for t in children] == (["code_inline"] if span != "—" else ["text"])


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_escaped_text_reads_as_it_was(text: str) -> None:
    html = parser().render("x " + escaped(text))
    assert re.findall(r"</?(\w+)", html) in (["p", "p"], ["p", "br", "p"])


@example("`a`\n````\nb")
@given(st.text(st.sampled_from("`~a\n "), max_size=40))
def test_nothing_leaves_a_fence(text: str) -> None:
    found = parser().parse(fence(text) + "\n\nafter")
    assert [t.type for t in found] == ["fence", "paragraph_open", "inline", "paragraph_close"]


@pytest.mark.parametrize("limit", [3_000, 10_000, LIMIT])
def test_it_stays_within_the_limit_in_bytes(make_run: Callable[[], Any], limit: int) -> None:
    run = poisoned(make_run(), "日本語 " * 2_000)
    many = tuple(msgspec.structs.replace(run.verdict.tasks[0], task=f"task-{i}") for i in range(3_000))
    run.verdict = msgspec.structs.replace(run.verdict, tasks=many, model="m", sentence="s", what_to_do="w")
    said = render(run.view(), limit=limit)
    assert len(said.encode()) <= limit
    if limit < LIMIT:
        assert "Left out to stay within the limit" in said


def test_a_limit_that_not_even_the_verdict_fits_is_refused(run: Any) -> None:
    with pytest.raises(ValueError, match="expected a limit of at least"):
        render(run.view(), limit=50)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=30))
def test_any_text_can_be_written(make_run: Callable[[], Any], text: str) -> None:
    render(poisoned(make_run(), text).view()).encode("utf-8")


def test_a_redacted_summary_holds_no_words_of_a_model(run: Any) -> None:
    said = render(run.view(redact=True))
    for secret in ("say hi", "IndexError", "lighthouse", "counted", "quoted ="):
        assert secret not in said
    assert "case-lost" in said
