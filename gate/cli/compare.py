"""`gate compare`: what moved between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gate.cli.echo import echo
from gate.cli.options import DIRECTORY

if TYPE_CHECKING:
    from gate.compare import Moves


@click.command("compare")
@click.argument("run_a", type=DIRECTORY)
@click.argument("run_b", type=DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def command(run_a: Path, run_b: Path, as_json: bool) -> int:
    """Say which verdicts, cases, acceptances and speeds moved from RUN_A to RUN_B, prompt by prompt."""
    import msgspec

    from evals.records import RunReader
    from gate.cli.outputs import say_torn
    from gate.compare import compare_runs

    moves = compare_runs(run_a, run_b)
    for run in (run_a, run_b):
        say_torn(RunReader(run))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(moves), indent=2))
    else:
        for line in _lines(moves):
            echo(line)
    return 0


def _lines(moves: Moves) -> list[str]:
    lines = [f"setting  {text}" for text in moves.settings]
    for verdict in moves.verdicts:
        where = f"{verdict.task} {verdict.arm}" if verdict.task else "the whole"
        what = f"{verdict.before} -> {verdict.after}" if verdict.moved else f"stays {verdict.after}"
        lines.append(f"verdict  {where}: {what}")
    for task in moves.tasks:
        lines.append(
            f"task     {task.task} {task.arm}: {task.passed_before} -> {task.passed_after} of {task.cases} cases, "
            f"{task.same_text} of {task.prompts} answers the same, acceptance "
            f"{_share(task.acceptance_before)} -> {_share(task.acceptance_after)}"
        )
    for case in moves.cases:
        lines.append(
            f"case     {case.task} {case.arm} {case.prompt} {case.case}: {case.before} -> {case.after}"
        )
    for arm, speed in moves.speeds.items():
        interval = (
            f" ({speed.low:.2f} to {speed.high:.2f})"
            if speed.low is not None and speed.high is not None
            else ""
        )
        lines.append(f"speed    {arm}: {speed.ratio:.2f} times{interval} over {speed.prompts} prompts")
    return lines + [f"unpaired {text}" for text in moves.unpaired]


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
