"""Threat: what a model said becomes part of the page (markup, script, attributes), the page asks the network for
something, or a run of an unusual shape has no page at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.types import Failure
from gate.types import Finding
from reports.html import render

HOSTILE = (
    "</pre></td><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\"'><svg onload=alert(3)>&lt;b&gt;{{ 7 * 7 }}{% raw %}]]><!-- "
    "\x00\x1b[2J\u202eevil\u2066\ud800 javascript:alert(4)"
)


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts = 0
        self.ids: list[str] = []
        self.links: list[str] = []
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.elements.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def poison(run: Any, text: str) -> None:
    """Puts `text` wherever a run holds words of a model, of a task's author or of an engine."""
    renamed = msgspec.structs.replace
    run.answers = [renamed(a, text=a.text + text) for a in run.answers]
    run.comparisons = [
        renamed(
            c,
            divergence=c.divergence
            and renamed(c.divergence, base_token_text=text, other_token_text=text[:9]),
        )
        for c in run.comparisons
    ]
    run.grades = [
        renamed(g, cases=tuple(renamed(c, outcome="fail", observed=text, expected=text) for c in g.cases))
        for g in run.grades
    ]
    run.tasks = {
        name: renamed(
            t,
            title=text,
            summary=text,
            prompts=tuple(renamed(p, text=text) for p in t.prompts),
            cases=tuple(renamed(c, why=text) for c in t.cases),
        )
        for name, t in run.tasks.items()
    }
    failure = Failure("crash", text, signal=11)
    run.answers[0] = renamed(run.answers[0], failure=failure)
    run.verdict = renamed(
        run.verdict,
        model=text,
        sentence=text,
        what_to_do=text,
        caveats=(text,),
        findings=tuple(renamed(f, message=text, code=text, arm=text) for f in run.verdict.findings),
        tasks=tuple(renamed(t, sentence=text, requirement=text, reasons=(text,)) for t in run.verdict.tasks),
    )
    run.manifest = renamed(run.manifest, environment={text: text, "nested": {text: [text]}})


def safe_elements(run: Any) -> tuple[set[str], set[str]]:
    page = Page(render(run.view()))
    return page.elements, page.attributes


@pytest.mark.parametrize("redact", [False, True])
def test_hostile_text_adds_nothing_that_a_browser_acts_on(make_run: Callable[[], Any], redact: bool) -> None:
    elements, attributes = safe_elements(make_run())
    run = make_run()
    poison(run, HOSTILE)
    html = render(run.view(redact=redact))
    html.encode("utf-8")
    page = Page(html)
    assert page.scripts == 1
    assert page.elements - elements <= {"i"}
    assert not {name for name in page.attributes if name.startswith("on")}
    assert page.attributes - attributes <= {"title"}
    assert not {c for c in ("\x00", "\x1b", "\u202e", "\u2066") if c in html}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), min_size=1, max_size=30))
def test_any_text_is_only_text(make_run: Callable[[], Any], text: str) -> None:
    run = make_run()
    poison(run, text)
    html = render(run.view(), with_charts=False)
    html.encode("utf-8")
    page = Page(html)
    assert page.scripts == 1
    assert len(page.ids) == len(set(page.ids))


def test_every_link_stays_in_the_page_and_leads_somewhere(run: Any) -> None:
    page = Page(render(run.view()))
    inside = [link for link in page.links if link.startswith("#")]
    assert {link[1:] for link in inside} <= set(page.ids)
    assert [link for link in page.links if not link.startswith("#")] == ["data:,"]
    assert not re.search(r"https?://", page.text)
    assert not {"img", "iframe", "object", "embed", "form", "base"} & page.elements


def test_the_verdict_comes_first_with_its_reasons_and_what_to_do(run: Any) -> None:
    text = Page(render(run.view())).text
    order = [
        "Do not serve",
        run.verdict.sentence,
        run.verdict.what_to_do,
        "case-lost",
        "Tasks and arms",
        "Settings of each arm",
    ]
    places = [text.index(part, text.index("Skip to the verdict")) for part in order]
    assert places == sorted(places)


def test_what_was_not_measured_is_a_dash_and_no_draft_is_not_zero_percent(run: Any) -> None:
    verdict = run.verdict
    arms = tuple(
        msgspec.structs.replace(a, accepted=0, drafted=0, acceptance=None, tokens_per_s=None, ttft_s=None)
        for a in verdict.tasks[0].arms
    )
    task = msgspec.structs.replace(verdict.tasks[0], arms=arms, speed_ratio=None)
    run.verdict = msgspec.structs.replace(verdict, tasks=(task,), worth_it=None)
    text = Page(render(run.view())).text
    assert "none drafted" in text
    assert "not known" in text
    assert "0.0%" not in text


@pytest.mark.parametrize("decision", ["serve", "serve_with_limits", "do_not_serve", "inconclusive"])
def test_every_decision_has_a_page(run: Any, decision: Any) -> None:
    tasks = tuple(msgspec.structs.replace(t, decision=decision) for t in run.verdict.tasks)
    run.verdict = msgspec.structs.replace(run.verdict, decision=decision, tasks=tasks)
    assert f'class="verdict {decision}"' in render(run.view())


@pytest.mark.parametrize("missing", ["answers", "comparisons", "margins", "grades"])
def test_a_run_with_parts_missing_has_a_page(run: Any, missing: str) -> None:
    setattr(run, missing, [])
    assert "Do not serve" in render(run.view())


def test_a_margin_without_noise_has_its_gap(run: Any) -> None:
    """As servers tell it, where too few places could be compared."""
    run.margins = [msgspec.structs.replace(m, noise={}, source="server") for m in run.margins]
    text = Page(render(run.view())).text
    assert "nats below the best" in text and "times the noise" not in text


def test_prompts_without_any_answer_are_named_once_and_not_called_different(run: Any) -> None:
    run.answers = [a for a in run.answers if a.task == "csv"]
    missing = Finding("answers-missing", "unreadable", "w3 is missing", "prose", "mtp@1", "w3")
    run.verdict = msgspec.structs.replace(run.verdict, findings=(missing,))
    page = Page(render(run.view(), with_charts=False))
    text = page.text
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "No answer to 4 of 4 prompts: w1, w2, w3, w4." in text
    assert text.count("prompts where answers differ") == 1


def test_a_run_without_anything_has_a_page(run: Any) -> None:
    run.answers, run.comparisons, run.margins, run.grades, run.tasks = [], [], [], [], {}
    run.verdict = msgspec.structs.replace(
        run.verdict,
        tasks=(),
        findings=(),
        reasons=(),
        caveats=(),
        k=(),
        head_digests={},
        decision="inconclusive",
    )
    run.manifest = msgspec.structs.replace(run.manifest, arms=(), tasks={}, prompts={}, environment={})
    assert "Inconclusive" in render(run.view())


def test_two_thousand_answers_that_all_differ_stay_under_ten_megabytes(make_run: Callable[[], Any]) -> None:
    run = make_run()
    body = "\n".join(f"    if x < {i} and y > '{i}': return \"&\"" for i in range(120))
    names = tuple(f"v{i}" for i in range(1000))
    base = next(a for a in run.answers if a.arm == "plain")
    other = next(a for a in run.answers if a.arm == "mtp@1")
    run.manifest = msgspec.structs.replace(run.manifest, prompts={"csv": names}, tasks={"csv": "d" * 64})
    fails = tuple(msgspec.structs.replace(c, outcome="fail", observed="x" * 500) for c in run.grades[0].cases)
    run.grades = [
        msgspec.structs.replace(run.grades[0], arm=arm, prompt=name, cases=fails)
        for name in names
        for arm in ("plain", "mtp@1")
    ]
    run.comparisons = []
    run.answers = [
        msgspec.structs.replace(
            answer, prompt=name, task="csv", text=f"def f{i}():\n{body}{answer.arm}\n{body}"
        )
        for i, name in enumerate(names)
        for answer in (base, other)
    ]
    html = render(run.view(), with_charts=False)
    assert len(html.encode()) < 10_000_000
    assert html.count('class="prompt"') == 1000
