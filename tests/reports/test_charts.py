"""Threat: a chart shows a number that the run hasn't, needs what the page's policy forbids, or takes over its ids."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from reports.charts import MOST_ROWS, Chart, charts


def by_key(view: Any) -> dict[str, Chart]:
    return {chart.key: chart for chart in charts(view)}


def markers(chart: Chart, series: int) -> list[float]:
    """Where the marks of one series stand, in drawing units from the left."""
    root = ElementTree.fromstring(chart.svg)
    for legend in [group for group in root.iter("g") if "legend" in group.get("id", "")]:
        legend.clear()
    return [
        float(use.get("x", "nan"))
        for use in root.iter("use")
        if f"f-s{series}" in (use.get("class") or "") and use.get("x")
    ]


def test_all_four_are_drawn(run: Any) -> None:
    assert list(by_key(run.view())) == ["acceptance", "throughput", "scores", "margins"]


def test_nothing_is_drawn_of_what_was_not_measured(run: Any) -> None:
    run.margins = []
    run.answers = [msgspec.structs.replace(a, decode_s=None) for a in run.answers]
    tasks = tuple(
        msgspec.structs.replace(t, arms=tuple(msgspec.structs.replace(a, acceptance=None) for a in t.arms))
        for t in run.verdict.tasks
    )
    run.verdict = msgspec.structs.replace(run.verdict, tasks=tasks)
    assert list(by_key(run.view())) == ["scores"]


def test_marks_stand_where_the_numbers_are(run: Any) -> None:
    scores = by_key(run.view())["scores"]
    plain, arm = markers(scores, 0), markers(scores, 1)
    assert len(set(plain)) == 1, "plain passes all cases of both tasks"
    assert min(arm) < max(arm) == pytest.approx(max(plain), abs=1.5), "18 of 20, and all"


def test_nothing_in_it_that_the_policy_of_the_page_forbids(run: Any) -> None:
    for chart in charts(run.view()):
        root = ElementTree.fromstring(chart.svg)
        assert not {"style", "script", "image", "metadata", "foreignObject"} & {
            element.tag for element in root.iter()
        }
        assert not {
            name for element in root.iter() for name in element.attrib if name == "style" or name[:2] == "on"
        }
        assert "#00000" not in chart.svg, "each colour is a class, so that it follows light and dark"
        assert "http" not in str(chart.svg).replace("http://www.w3.org/", "")


def test_ids_are_its_own_and_references_lead_to_them(run: Any) -> None:
    seen: set[str] = set()
    for chart in charts(run.view()):
        ids = re.findall(r' id="([^"]+)"', chart.svg)
        assert len(ids) == len(set(ids))
        assert not seen & set(ids)
        seen |= set(ids)
        used = re.findall(r"url\(#([^)]+)\)", chart.svg) + re.findall(r'href="#([^"]+)"', chart.svg)
        assert used
        assert set(used) <= set(ids)


def test_it_says_what_it_is_without_being_seen(run: Any) -> None:
    for chart in charts(run.view()):
        root = ElementTree.fromstring(chart.svg)
        assert root.get("role") == "img"
        assert [root.find(tag).text for tag in ("title", "desc")] == [chart.title, chart.note]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "name", ["$\\frac{$", "</text><script>", "日本語", "a\x00b\u202e", "x" * 500, "_", "{}"]
)
def test_any_name_of_a_task_is_only_text(run: Any, name: str) -> None:
    run.manifest = msgspec.structs.replace(run.manifest, tasks={name: "d" * 64}, prompts={name: ()})
    tasks = tuple(msgspec.structs.replace(t, task=name) for t in run.verdict.tasks[:1])
    run.verdict = msgspec.structs.replace(run.verdict, tasks=tasks)
    for chart in charts(run.view()):
        assert "script" not in {element.tag for element in ElementTree.fromstring(chart.svg).iter()}


def test_many_tasks_are_bounded(run: Any) -> None:
    names = [f"task-{i}" for i in range(MOST_ROWS * 3)]
    run.manifest = msgspec.structs.replace(run.manifest, tasks=dict.fromkeys(names, "d" * 64), prompts={})
    one = run.verdict.tasks[0]
    tasks = tuple(msgspec.structs.replace(one, task=name) for name in names)
    run.verdict = msgspec.structs.replace(run.verdict, tasks=tasks)
    scores = by_key(run.view())["scores"]
    assert f"task-{MOST_ROWS - 1}" in scores.svg
    assert f"task-{MOST_ROWS}<" not in scores.svg
