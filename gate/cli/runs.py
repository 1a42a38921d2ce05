"""`gate runs`: list run directories, and prune old ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from gate.cli.echo import echo
from gate.cli.options import DIRECTORY, DURATION


@click.command("runs")
@click.argument("root", type=DIRECTORY, default=Path("gate-runs"))
@click.option("--older-than", type=DURATION, metavar="TIME", help="Remove runs made longer ago, e.g. 30d.")
@click.option(
    "--max-size", metavar="SIZE", help="Remove the oldest until the rest has at most this, e.g. 2GB."
)
@click.option("--keep", type=click.IntRange(0), default=0, metavar="N", help="Keep the newest N in any case.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def command(root: Path, older_than: float | None, max_size: str | None, keep: int, dry_run: bool) -> int:
    """List the runs in ROOT (default: gate-runs); with an age or a size, prune them.

    Only directories that hold a run and nothing else are ever removed.
    """
    from gate.runs import choose, list_runs, remove
    from gate.units import parse_size, show_size

    runs = list_runs(root)
    if older_than is None and max_size is None:
        for run in runs:
            state = run.decision or ("complete" if run.complete else "unfinished")
            echo(
                f"{run.created:%Y-%m-%d %H:%M}  {show_size(run.size):>8}  {state:18}  {run.model}  {run.path}"
            )
        return 0
    age = None if older_than is None else timedelta(seconds=older_than)
    size = None if max_size is None else parse_size(max_size)
    for run, why in choose(runs, datetime.now(UTC), older_than=age, max_total=size, keep=keep):
        done = remove(run, why, dry_run=dry_run)
        verb = ("would remove" if dry_run else "removed") if done.removed else "kept"
        echo(f"{verb} {run.path}: {done.why}")
    return 0
