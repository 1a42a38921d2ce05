"""`gate report`: verdict and report of a run, made again without decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gate.cli.options import DIRECTORY, policy_option, quiet_option, shared_outputs


@click.command("report")
@click.argument("run", type=DIRECTORY)
@policy_option
@click.option("--allow-limits", is_flag=True, help="Exit with 0 for `serve with limits` too.")
@shared_outputs
@quiet_option
def command(run: Path, policy: Path | None, quiet: bool, **shown: Any) -> int:
    """Make RUN's verdict and report again from its records, without decoding, also under another policy.

    Exit codes are those of `gate check`.
    """
    from gate.cli.outputs import conclude_and_write

    return conclude_and_write(run, policy, quiet=quiet, **shown)
