"""`gate export`: a checkpoint with its head as a model directory, or a sentence saying why not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gate.cli.options import DIRECTORY, FORMATS

if TYPE_CHECKING:
    from evals.headbuild.formats import WeightFormat


@click.command("export")
@click.option(
    "--checkpoint", required=True, type=DIRECTORY, metavar="DIR", help="Checkpoint with mtp.* tensors."
)
@click.option("--out", required=True, type=DIRECTORY, metavar="DIR", help="A directory to be made.")
@click.option("--weight-format", type=click.Choice(FORMATS), default="fp16", show_default=True)
@click.option("--group-size", type=click.IntRange(8, 4096), default=64, show_default=True, help="Of int4.")
@click.option(
    "--exporter-python",
    type=DIRECTORY,
    metavar="PATH",
    help="Interpreter that has optimum-intel (default: an environment of the gate's own, made on first use).",
)
@click.option("--verbose", is_flag=True, help="Show what the exporter says.")
def command(
    checkpoint: Path,
    out: Path,
    weight_format: WeightFormat,
    group_size: int,
    exporter_python: Path | None,
    verbose: bool,
) -> int:
    """Export --checkpoint with its head by optimum-intel, in an environment of its own, and inspect the result.

    Exit code 0 if --out holds a target and a whole head, 2 if not; then nothing is left at --out.
    """
    from evals.export.environment import exporter_python as find_python
    from evals.export.export import check_checkpoint, export
    from gate.units import show_size

    source = check_checkpoint(checkpoint, out)
    python = find_python(exporter_python, lambda text: click.echo(f"gate: {text}", err=True))
    found = export(source, out, python, weight_format, group=group_size, verbose=verbose)
    for part in found.parts:
        if part.role in ("target", "head"):
            shares = ", ".join(f"{scheme.share:.0%} {scheme.mode}" for scheme in part.schemes)
            click.echo(f"{out}: {part.role} {part.name}, {show_size(part.bytes)}: {shares}")
    return 0
