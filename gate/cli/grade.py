"""`gate grade`: run a run's programs again, then decide again; nothing is decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gate.cli.options import DIRECTORY, policy_option, quiet_option, sandbox_option, shared_outputs


@click.command("grade")
@click.argument("run", type=DIRECTORY)
@policy_option
@sandbox_option
@click.option("--allow-limits", is_flag=True, help="Exit with 0 for `serve with limits` too.")
@shared_outputs
@quiet_option
def command(run: Path, policy: Path | None, sandbox_name: str | None, quiet: bool, **shown: Any) -> int:
    """Grade RUN's answers again and give its verdict, without decoding, also under another policy.

    Exit codes are those of `gate check`.
    """
    from gate.cli.outputs import conclude_and_write
    from gate.regrade import regrade

    count = regrade(run, sandbox_name)
    if not quiet:
        click.echo(f"graded {count} answers", err=True)
    return conclude_and_write(run, policy, quiet=quiet, **shown)
