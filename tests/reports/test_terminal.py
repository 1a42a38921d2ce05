"""Threat: the terminal shows a verdict that doesn't fit, colours or bars where nobody sees them, or obeys an escape
sequence that came out of a model or a task's name."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from reports.terminal import WIDTH, console, decoding, print_verdict


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(verdict: Any, stream: io.StringIO, **more: Any) -> str:
    print_verdict(verdict, console(stream), **more)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_the_table_and_one_sentence_that_says_what_to_do(run: Any) -> None:
    said = printed(run.verdict, io.StringIO(), report="out/report.html")
    for part in (
        "csv",
        "mtp@1",
        "Do not serve",
        "3/4",
        "20/20 → 18/20",
        "90.0%",
        "1.31×",
        "case-lost, new-crash",
    ):
        assert part in said, part
    assert said.rstrip().splitlines()[-3:] == [
        f"Do not serve. {run.verdict.sentence}",
        run.verdict.what_to_do,
        "Report: out/report.html",
    ]


def test_long_names_still_fit_100_columns(run: Any) -> None:
    row = msgspec.structs.replace(
        run.verdict.tasks[0],
        task="a-task-with-a-very-long-name-" * 4,
        arm="mtp@15+int4-asymmetric-group-64",
        decision="serve_with_limits",
        reasons=("skipped-or-repeated-tokens", "acceptance-collapse-at-depth", "verdict-holds-to-depth", "x"),
        prompts=10_000,
        identical=9_999,
    )
    said = printed(msgspec.structs.replace(run.verdict, tasks=(row,) * 3), io.StringIO())
    assert max(cell_len(line) for line in said.splitlines()) <= WIDTH
    assert "Serve, limits" in said
    assert "9999/10000" in said


def test_colour_only_on_a_terminal_and_not_where_no_color_is_set(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in printed(run.verdict, io.StringIO())
    assert "\x1b[" in printed(run.verdict, Tty())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in printed(run.verdict, Tty())


def test_quiet_says_nothing(run: Any) -> None:
    stream = io.StringIO()
    print_verdict(run.verdict, console(stream, quiet=True))
    assert stream.getvalue() == ""


def test_escape_sequences_and_markup_are_only_text(run: Any) -> None:
    hostile = "[bold red]x[/] \x1b]0;title\x07\x1b[2J\u202e :smile:"
    row = msgspec.structs.replace(run.verdict.tasks[0], task=hostile, arm=hostile, reasons=(hostile,))
    verdict = msgspec.structs.replace(run.verdict, tasks=(row,), sentence=hostile, what_to_do=hostile)
    said = printed(verdict, io.StringIO())
    assert not set("\x1b\x07\u202e") & set(said)
    assert "[bold red]x[/]" in said
    assert ":smile:" in said


def test_the_bar_is_drawn_on_a_terminal_only_and_never_when_quiet() -> None:
    drawn = {}
    for name, stream, quiet in (
        ("pipe", io.StringIO(), False),
        ("tty", Tty(), False),
        ("quiet", Tty(), True),
    ):
        with decoding(3, console(stream), quiet=quiet) as bar:
            for _ in range(3):
                bar.advance(arm="mtp@1", task="csv", prompt="w1\x1b[2J")
        drawn[name] = stream.getvalue()
    assert drawn["pipe"] == drawn["quiet"] == ""
    assert "3/3" in drawn["tty"]
    assert "\x1b[2Jmtp" not in drawn["tty"]


def test_a_verdict_without_tasks_says_its_sentence(run: Any) -> None:
    said = printed(msgspec.structs.replace(run.verdict, tasks=(), decision="inconclusive"), io.StringIO())
    assert said.startswith("Inconclusive. ")
