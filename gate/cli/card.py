"""`gate card`: the table that a head's model card needs."""

from __future__ import annotations

from pathlib import Path

import click

from gate.cli.options import DIRECTORY, policy_option


@click.command("card")
@click.argument("run", type=DIRECTORY)
@policy_option
@click.option(
    "--model-index", "name", metavar="NAME", help="Print model-index metadata (YAML) for this name instead."
)
def command(run: Path, policy: Path | None, name: str | None) -> int:
    """Print Markdown for a head's model card: acceptance, throughput and scores per arm, and what differed."""
    from gate.cli.outputs import say_torn, view_of
    from gate.conclude import conclude
    from gate.policy import load_policy
    from reports.card import model_index, render

    concluded = conclude(run, load_policy(policy or run / "policy.toml"))
    say_torn(concluded.records)
    view = view_of(concluded)
    click.echo(model_index(view, name) if name else render(view), nl=False)
    return 0
