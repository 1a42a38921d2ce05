"""`gate head`: a head rebuilt from a checkpoint, or moved from one layout to the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gate.cli.options import DIRECTORY, FORMATS, LAYOUTS

if TYPE_CHECKING:
    from evals.headbuild.formats import WeightFormat


@click.group("head")
def command() -> None:
    """Rebuild a head from its checkpoint, or move it between layouts."""


@command.command("build")
@click.option(
    "--checkpoint", required=True, type=DIRECTORY, metavar="DIR", help="Checkpoint with mtp.* tensors."
)
@click.option("--base", required=True, type=DIRECTORY, metavar="DIR", help="The target's export.")
@click.option("--out", required=True, type=DIRECTORY, metavar="DIR", help="A directory to be made.")
@click.option("--weight-format", type=click.Choice(FORMATS), default="fp16", show_default=True)
@click.option("--group-size", type=click.IntRange(8, 4096), default=64, show_default=True, help="Of int4.")
def build(checkpoint: Path, base: Path, out: Path, weight_format: WeightFormat, group_size: int) -> int:
    """Rebuild the head of --checkpoint as openvino_mtp_layer and openvino_mtp_lm_head beside --base's target.

    The lm_head is cut out of the target's graph, quantised as it is there. int8 and int4 need the extra `heads`.
    Exit code 0 if the head was written and passes inspection, 2 if not; then nothing is left at --out.
    """
    from evals.headbuild.build import build_head
    from evals.headbuild.formats import Format
    from gate.units import show_size

    made = build_head(checkpoint, base, out, Format(weight_format, group_size))
    experts = f", {made.experts} experts" if made.experts else ""
    click.echo(
        f"{made.path}: layer {show_size(made.layer)} ({weight_format}{experts}), lm_head {show_size(made.lm_head)}"
    )
    return 0


@command.command("convert")
@click.option("--model", required=True, type=DIRECTORY, metavar="DIR", help="Model directory with a head.")
@click.option("--to", "layout", required=True, type=click.Choice(sorted(LAYOUTS)), help="Layout to write.")
@click.option("--out", required=True, type=DIRECTORY, metavar="DIR", help="A directory to be made.")
def convert(model: Path, layout: str, out: Path) -> int:
    """Write --model with its head in the other layout, drafting what it drafted before.

    exported: openvino_mtp_model, which decodes with the target's lm_head; split: openvino_mtp_layer with an
    openvino_mtp_lm_head. Exit code 0 if it was written, 2 if the graphs don't allow it; then nothing is left at --out.
    """
    from evals.headbuild.convert import convert_head

    click.echo(f"{convert_head(model, out, LAYOUTS[layout])}: head in the {layout} layout")
    return 0
