"""`gate verify`: what a deploy step asks before it serves these very bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import click

from gate.cli.echo import echo
from gate.cli.options import DIRECTORY, DURATION, layout_option, policy_option, quiet_option, task_options


@click.command("verify")
@click.option(
    "--model", required=True, type=DIRECTORY, metavar="DIR", help="The model directory to be deployed."
)
@click.option(
    "--attestation", required=True, type=DIRECTORY, metavar="FILE", help="attestation.json of its gate run."
)
@click.option("--head", type=DIRECTORY, metavar="DIR", help="Where the head lies, if not in --model.")
@layout_option()
@click.option(
    "--verdict", type=DIRECTORY, metavar="FILE", help="verdict.json (default: beside the attestation)."
)
@click.option("--served", type=DIRECTORY, metavar="FILE", help="TOML or JSON of what the deploy will use.")
@click.option(
    "--k", type=click.IntRange(1), metavar="K", help="Drafted tokens per verify step that will be served."
)
@click.option("--device", metavar="NAME", help="Device that will be served on.")
@click.option(
    "--ov", "properties", multiple=True, metavar="KEY=VALUE", help="OpenVINO property that will be served."
)
@click.option("--max-age", type=DURATION, metavar="TIME", help="Refuse older statements, e.g. 30d.")
@click.option(
    "--key", type=DIRECTORY, metavar="FILE", help="Public key (PEM): the statement must be signed by it."
)
@click.option(
    "--allow-limits", is_flag=True, help="Accept `serve with limits` where what is served keeps to them."
)
@task_options
@policy_option
@quiet_option
def command(
    model: str,
    attestation: Path,
    head: Path | None,
    layout: Literal["genai", "split"] | None,
    verdict: Path | None,
    served: Path | None,
    k: int | None,
    device: str | None,
    properties: tuple[str, ...],
    max_age: float | None,
    key: Path | None,
    allow_limits: bool,
    task_dirs: tuple[Path, ...],
    task_names: tuple[str, ...],
    policy: Path | None,
    quiet: bool,
) -> int:
    """Hold a model directory, and what a deploy will use, against an attestation.

    Exit codes: 0 it may be served, 1 it may not or something doesn't match, 2 something can't be read, 3 the run
    could not tell.
    """
    from evals.arms import parse_property
    from gate.cli.check import resolve_model
    from gate.cli.outputs import read_key
    from gate.policy import load_policy
    from gate.served import Served, load_served, merge
    from gate.verify import verify
    from tasks.folder import load_tasks

    options = Served(k=k, device=device, properties=dict(parse_property(p) for p in properties))
    tasks = {t.name: t.digest for t in load_tasks(task_dirs, task_names)} if task_dirs or task_names else None
    result = verify(
        resolve_model(model),
        attestation,
        now=datetime.now(UTC),
        head_dir=head,
        layout=layout,
        verdict=verdict,
        policy_digest=load_policy(policy).digest() if policy else None,
        tasks=tasks,
        max_age=None if max_age is None else timedelta(seconds=max_age),
        served=merge(load_served(served) if served else Served(), options),
        public_key=read_key(key),
        allow_limits=allow_limits,
    )
    for check in result.checks if not quiet else result.failed:
        echo(f"{'ok  ' if check.ok else 'FAIL'}  {check}")
    if not quiet:
        for note in result.notes:
            echo(f"note  {note}")
    echo(result.sentence)
    return result.exit_code
