"""What the terminal shows: a bar while answers are decoded, then a table that fits 100 columns and what to do.

Everything that came from a run is shown as text: rich's markup, control characters and escape sequences in a task's
or an arm's name have no effect.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from gate.types import Decision, TaskVerdict, Verdict
from reports import words
from reports.visible import one_line

WIDTH = 100
"""Columns where the output isn't a terminal, and at most where it is."""

_STYLES: dict[Decision, str] = {
    "serve": "green",
    "serve_with_limits": "yellow",
    "do_not_serve": "red",
    "inconclusive": "magenta",
}
_SHORT: dict[Decision, str] = {**words.DECISIONS, "serve_with_limits": "Serve, limits"}


def console(stream: TextIO | None = None, *, stderr: bool = False, quiet: bool = False) -> Console:
    """A console on `stream` (standard output or error without one): colour only on a terminal and without NO_COLOR."""
    file = stream or (sys.stderr if stderr else sys.stdout)
    made = Console(file=file, quiet=quiet, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if not made.is_terminal or made.width > WIDTH:
        made.width = WIDTH
    return made


def table(verdict: Verdict) -> Table:
    """One row for each task and arm, within 100 columns; long names and reasons wrap."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    made.add_column("task", overflow="fold", max_width=18)
    made.add_column("arm", overflow="fold", max_width=14)
    made.add_column("verdict", no_wrap=True)
    made.add_column("same", justify="right", no_wrap=True)
    made.add_column("passed", justify="right", no_wrap=True)
    made.add_column("accepted", justify="right", no_wrap=True)
    made.add_column("speed", justify="right", no_wrap=True)
    made.add_column("reasons", overflow="fold", min_width=14, ratio=1)
    for found in verdict.tasks:
        made.add_row(*_row(found))
    return made


def _row(found: TaskVerdict) -> list[Text]:
    summary = next((arm for arm in found.arms if arm.arm == found.arm), None)
    base = next((arm.arm for arm in found.arms if arm.arm != found.arm), "")
    before, after = words.scores(found, base)
    shown = [_plain(code) for code in found.reasons[:3]]
    if len(found.reasons) > len(shown):
        shown.append(Text(f"+{len(found.reasons) - len(shown)}"))
    return [
        _plain(found.task),
        _plain(found.arm),
        Text(_SHORT[found.decision], style=_STYLES[found.decision]),
        Text(f"{found.identical}/{found.prompts}"),
        Text(f"{before} → {after}", style="red" if found.lost else ""),
        Text(words.acceptance(summary)),
        Text(words.ratio(found.speed_ratio)),
        Text(", ").join(shown),
    ]


def _plain(text: str) -> Text:
    return Text(one_line(text, 60))


def print_verdict(verdict: Verdict, console: Console, *, report: str | None = None) -> None:
    """The table, the decision with its sentence, one sentence that says what to do, and where the report is."""
    if verdict.tasks:
        console.print(table(verdict), width=min(console.width, WIDTH))
        console.print()
    decision = Text(words.DECISIONS[verdict.decision] + ".", style=f"bold {_STYLES[verdict.decision]}")
    console.print(Text.assemble(decision, " ", one_line(words.said(verdict), 600)))
    console.print(Text(one_line(verdict.what_to_do, 600)))
    if report is not None:
        console.print(Text(f"Report: {one_line(report, 400)}"), soft_wrap=True)


class Decoding:
    """Progress of decoding. Without a bar every call does nothing."""

    def __init__(self, bar: Progress | None, planned: int) -> None:
        self._bar = bar
        self._task = bar.add_task("decoding", total=planned, what="") if bar else None

    def advance(self, arm: str = "", task: str = "", prompt: str = "") -> None:
        """One more answer is there (or has failed): whose it was is shown beside the bar."""
        if self._bar is not None and self._task is not None:
            what = " ".join(one_line(part, 20) for part in (task, prompt, arm) if part)
            self._bar.update(self._task, advance=1, what=what)


@contextmanager
def decoding(planned: int, console: Console, *, quiet: bool = False) -> Iterator[Decoding]:
    """A bar over `planned` answers, drawn only where `console` is a terminal and not quiet; then gone."""
    if quiet or console.quiet or not console.is_terminal:
        yield Decoding(None, planned)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[what]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield Decoding(bar, planned)
