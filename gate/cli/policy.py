"""`gate policy`: print the default policy, ready to be saved as gate.toml and changed."""

from __future__ import annotations

import click

from gate.cli.options import DIRECTORY


@click.command("policy")
@click.option("--check", "file", type=DIRECTORY, metavar="FILE", help="Check a policy file instead.")
def command(file: object) -> None:
    """Print the default policy, or check one.

    \b
    gate policy > gate.toml     a copy to change
    gate policy --check gate.toml
    """
    from pathlib import Path

    from gate.policy import default_policy_text, load_policy

    if isinstance(file, Path):
        policy = load_policy(file)
        click.echo(f"{file}: a valid policy, digest {policy.digest()}")
    else:
        click.echo(default_policy_text(), nl=False)
