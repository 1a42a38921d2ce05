"""`gate export-run`: a run as one parquet table."""

from __future__ import annotations

from pathlib import Path

import click

from gate.cli.echo import echo
from gate.cli.options import DIRECTORY


@click.command("export-run")
@click.argument("run", type=DIRECTORY)
@click.option("--out", type=DIRECTORY, metavar="FILE", help="Where to (default: RUN/answers.parquet).")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
def command(run: Path, out: Path | None, overwrite: bool) -> int:
    """Write RUN as parquet that `datasets.load_dataset("parquet", …)` reads, a row an answer.

    Needs the extra `data`: pip install 'mtp-gate[data]'.
    """
    from evals.export_run import export_run
    from evals.records import RunReader
    from gate.cli.outputs import say_torn

    out = out or run / "answers.parquet"
    rows = export_run(run, out, overwrite=overwrite)
    say_torn(RunReader(run))
    echo(f"{out}: {rows} rows")
    return 0
