"""Threat: the page only looks right in a test of its text. Here a real Chromium opens it: no error, no request, hostile
answers inert, folding and anchors work with and without JavaScript, and a screen reader finds its way (axe)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reports.html import render

pytestmark = pytest.mark.system("chromium")

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
]
HOSTILE = (
    "</pre></td></table><script>document.title='owned'</script>"
    "<img src=http://127.0.0.1:9/x onerror=document.title='owned'>"
    "<style>*{display:none}</style><svg onload=document.title='owned'>"
    "<a href=\"javascript:document.title='owned'\">\u202e\x00"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a view's page and fails where the console said something or the network was asked for anything."""
    troubles: list[str] = []
    contexts: list[Any] = []

    def go(view: Any, *, fragment: str = "", **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(render(view), encoding="utf-8")
        context = chromium.new_context(**({"viewport": {"width": 1400, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on(
            "request", lambda r: troubles.append(r.url) if not r.url.startswith(("file:", "data:,")) else None
        )
        page.goto(path.as_uri() + fragment)
        return page

    yield go
    for context in contexts:
        context.close()
    assert troubles == []


def test_the_verdict_is_in_sight_at_once(run: Any, visit: Callable[..., Any]) -> None:
    page = visit(run.view())
    assert page.get_by_role("heading", level=1).inner_text() == "Do not serve"
    for said in (run.verdict.sentence, run.verdict.what_to_do, "case-lost"):
        assert page.locator("#verdict").get_by_text(said).first.bounding_box()["y"] < 900


def test_hostile_answers_do_nothing(make_run: Callable[[], Any], visit: Callable[..., Any]) -> None:
    run = make_run()
    run.answers = [msgspec.structs.replace(a, text=HOSTILE + a.text) for a in run.answers]
    run.verdict = msgspec.structs.replace(run.verdict, sentence=HOSTILE)
    page = visit(run.view())
    page.get_by_role("button", name="Unfold answers", exact=True).click()
    assert page.title().startswith("Do not serve")
    assert page.locator("img, main style, main script").count() == 0
    assert page.locator("main a[href^=javascript]").count() == 0
    assert "<script>document.title='owned'</script>" in page.locator(".diff pre").first.text_content()
    assert page.locator("i.c", has_text="U+202E").first.is_visible()


def test_a_link_to_a_folded_answer_unfolds_it(run: Any, visit: Callable[..., Any]) -> None:
    view = run.view()
    anchor = view.tasks[0].prompts[3].anchor
    page = visit(view, fragment=f"#{anchor}")
    assert page.locator(f"#{anchor}").get_attribute("open") is not None
    assert page.locator(f"#{anchor} > .body > pre.text").first.is_visible()


def test_a_reason_leads_to_its_evidence(run: Any, visit: Callable[..., Any]) -> None:
    page = visit(run.view())
    page.get_by_role("button", name="Fold answers", exact=True).click()
    page.locator("#verdict .reasons a").first.click()
    mark = page.locator("tr.changed mark").first
    mark.wait_for(state="visible")
    assert 0 <= mark.bounding_box()["y"] < 900


def test_it_reads_without_javascript(run: Any, visit: Callable[..., Any]) -> None:
    page = visit(run.view(), java_script_enabled=False)
    assert page.locator("mark").first.is_visible()
    assert page.get_by_role("button").count() == 0
    assert page.get_by_role("searchbox").count() == 0
    folded = page.locator("details.alike").first
    assert not folded.locator("details").first.is_visible()
    folded.locator("> summary").click()
    assert folded.locator("details").first.is_visible()


def test_the_keyboard_alone_folds_and_unfolds(run: Any, visit: Callable[..., Any]) -> None:
    page = visit(run.view())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    prompt = page.locator("details.prompt").first
    was = prompt.evaluate("e => e.open")
    prompt.locator("> summary").focus()
    page.keyboard.press("Enter")
    assert prompt.evaluate("e => e.open") is not was


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_axe_finds_nothing(run: Any, visit: Callable[..., Any], scheme: str, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = visit(run.view(), color_scheme=scheme, viewport={"width": width, "height": 900})
    page.get_by_role("button", name="Unfold answers", exact=True).click()
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    found = Axe().run(page).response["violations"]
    assert [(v["id"], v["help"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found] == []


def test_dark_is_dark(run: Any, visit: Callable[..., Any]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert max(visit(run.view(), color_scheme="dark").evaluate(ground)) < 60
    assert min(visit(run.view(), color_scheme="light").evaluate(ground)) > 220


@pytest.mark.parametrize("width", [320, 768, 2200])
def test_nothing_runs_out_of_the_window(run: Any, visit: Callable[..., Any], width: int) -> None:
    page = visit(run.view(), viewport={"width": width, "height": 900})
    page.get_by_role("button", name="Unfold answers", exact=True).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_prints_with_differing_answers_unfolded(run: Any, visit: Callable[..., Any]) -> None:
    page = visit(run.view())
    page.get_by_role("button", name="Fold answers", exact=True).click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("tr.changed mark").first.is_visible()
    assert not page.get_by_role("navigation").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.prompt[open]").count() == 0


def test_nothing_runs_off_a_printed_page(run: Any, visit: Callable[..., Any]) -> None:
    """A4 less its margins is 688 CSS pixels wide, and paper doesn't scroll."""
    page = visit(run.view(), viewport={"width": 688, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 688


def shown(page: Any) -> list[str]:
    return page.evaluate(
        "[...document.querySelectorAll('details.prompt')].filter(e => e.checkVisibility()).map(e => e.id)"
    )


def test_the_filter_narrows_by_task_arm_outcome_and_text(run: Any, visit: Callable[..., Any]) -> None:
    page = visit(run.view())
    page.get_by_role("combobox", name="Outcome").select_option("lost")
    assert shown(page) == ["task-csv--w2"]
    assert page.locator("output").inner_text() == "1 of 8 prompts"
    assert not page.locator("section.task", has_text="A short story").is_visible()
    page.get_by_role("combobox", name="Outcome").select_option("alike")
    assert shown(page) == ["task-csv--w1", "task-csv--w3", "task-csv--w4", "task-prose--w2"]
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("combobox", name="Arm that differs").select_option("control@1")
    assert shown(page) == ["task-prose--w1", "task-prose--w3", "task-prose--w4"]
    page.get_by_role("combobox", name="Task", exact=True).select_option("csv")
    assert shown(page) == []
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("searchbox", name="Text").fill("Counted THE stars")
    page.locator("output", has_text="2 of 8 prompts").wait_for()
    assert shown(page) == ["task-prose--w1", "task-prose--w3"]


def test_a_link_leads_to_what_the_filter_hides(run: Any, visit: Callable[..., Any]) -> None:
    page = visit(run.view())
    page.get_by_role("combobox", name="Task", exact=True).select_option("prose")
    page.locator("#verdict .reasons a").first.click()
    page.locator("tr.changed mark").first.wait_for(state="visible")
    assert page.get_by_role("combobox", name="Task", exact=True).input_value() == ""


def test_two_thousand_answers_are_filtered_and_unfolded(
    make_run: Callable[[], Any], visit: Callable[..., Any]
) -> None:
    """How long it takes is measured in tests/bench; here it has to work at all."""
    run = make_run()
    names = tuple(f"v{i}" for i in range(1000))
    base, other = (
        next(a for a in run.answers if a.arm == arm and a.prompt == "w2") for arm in ("plain", "mtp@1")
    )
    run.manifest = msgspec.structs.replace(run.manifest, prompts={"csv": names}, tasks={"csv": "d" * 64})
    run.answers = [
        msgspec.structs.replace(a, prompt=name, text=f"{a.text}# number {i}.\n")
        for i, name in enumerate(names)
        for a in (base, other)
    ]
    page = visit(run.view())
    page.get_by_role("searchbox", name="Text").fill("number 777.")
    page.locator("output", has_text="1 of 1000 prompts").wait_for()
    one = page.locator("details.prompt:not([hidden])")
    one.locator("> summary").click()
    assert one.locator("mark").first.is_visible()
