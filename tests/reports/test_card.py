"""Threat: a model card claims what wasn't measured, or hides that the head must not be served."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from reports.card import model_index, render


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table of a Markdown text."""
    found: list[list[list[str]]] = []
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level == 4:
            found[-1][-1].append("".join(child.content for child in token.children or []))
    return found


def test_it_says_the_verdict_and_shows_three_tables(run: Any) -> None:
    said = render(run.view())
    assert "**Do not serve.**" in said
    acceptance, throughput, scores = tables(said)
    assert acceptance[1:] == [
        ["code", "mtp@1", "90.0%", "424 of 471"],
        ["prose", "mtp@1", "90.0%", "424 of 471"],
    ]
    assert throughput[0] == ["task", "arm", "median", "middle half", "runs", "of plain"]
    assert [row[:2] + row[4:] for row in throughput[1:3]] == [
        ["csv", "plain", "8", "—"],
        ["csv", "mtp@1", "4", "1.31×"],
    ]
    assert scores[1] == ["csv", "mtp@1", "20/20", "18/20", "2 lost, 0 gained", "3 of 4", "Do not serve"]
    assert "`csv` `w2`: `mtp@1` differs from token 63; lost: `doubled-quote`, `embedded-newline`" in said
    assert "Built-in tasks stand for themselves" in said


def test_tasks_of_one_kind_are_pooled_by_their_counts(run: Any) -> None:
    prose = run.tasks["prose"]
    run.tasks["prose"] = msgspec.structs.replace(prose, kind="code")
    few = tuple(
        msgspec.structs.replace(a, accepted=0, drafted=29, acceptance=0.0) if a.arm == "mtp@1" else a
        for a in run.verdict.tasks[1].arms
    )
    tasks = (run.verdict.tasks[0], msgspec.structs.replace(run.verdict.tasks[1], arms=few))
    run.verdict = msgspec.structs.replace(run.verdict, tasks=tasks)
    assert tables(render(run.view()))[0][1:] == [["code", "mtp@1", "84.8%", "424 of 500"]]


@pytest.mark.parametrize(("counts", "said"), [((None, None), "—"), ((0, 0), "none drafted")])
def test_no_drafts_are_not_zero_percent(run: Any, counts: tuple[int | None, int | None], said: str) -> None:
    changes = {"accepted": counts[0], "drafted": counts[1], "acceptance": None}
    tasks = tuple(
        msgspec.structs.replace(t, arms=tuple(msgspec.structs.replace(a, **changes) for a in t.arms))
        for t in run.verdict.tasks
    )
    run.verdict = msgspec.structs.replace(run.verdict, tasks=tasks)
    assert {row[2] for row in tables(render(run.view()))[0][1:]} == {said}
    metrics = yaml.safe_load(model_index(run.view(), "m").strip("-\n"))["model-index"][0]["results"]
    assert "acceptance" not in {m["type"] for result in metrics for m in result["metrics"]}


def test_the_metadata_is_read_back_by_the_hubs_own_library(run: Any) -> None:
    view = run.view()
    card = ModelCard(model_index(view, "user/head") + render(view))
    assert card.data.model_name == "user/head"
    found = {(r.dataset_type, r.metric_name): r.metric_value for r in card.data.eval_results or []}
    assert found["mtp-gate-csv", "draft acceptance, mtp@1"] == 0.9002
    assert found["mtp-gate-csv", "cases passed, mtp@1"] == 0.9
    assert ("mtp-gate-csv", "draft acceptance, control@1") not in found


def test_a_run_without_a_verdict_on_any_task_has_a_card(run: Any) -> None:
    run.verdict = msgspec.structs.replace(run.verdict, tasks=(), decision="inconclusive")
    assert "**Inconclusive.**" in render(run.view())
    assert "model-index" not in model_index(run.view(), "m")
