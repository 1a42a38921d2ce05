"""`gate serve-config`: what a run's verdict allows, in the option names of a server."""

from __future__ import annotations

from pathlib import Path

import click

from gate.cli.echo import echo
from gate.cli.options import DIRECTORY, policy_option

NAMES = ("ovms", "arcint", "llama.cpp")


@click.command("serve-config")
@click.argument("run", type=DIRECTORY)
@click.option("--for", "server", type=click.Choice(NAMES), help="Which server (default: all).")
@click.option("--arm", metavar="NAME", help="Serve this arm (default: the fastest that may be served).")
@click.option(
    "--model", metavar="DIR", help="Where the model will lie (default: the model's name in the run)."
)
@click.option("--out", type=DIRECTORY, metavar="DIR", help="Write files there instead of printing.")
@policy_option
def command(
    run: Path, server: str | None, arm: str | None, model: str | None, out: Path | None, policy: Path | None
) -> int:
    """Write a server's configuration as RUN's verdict allows it: head on or off, K, requests in flight, depth.

    The head is on only where every required task of its arm may be served. Exit code 0: it is on; 1: it is off,
    because it must not be served, isn't worth it, or the server can't keep to what the verdict allows; 3: it is off,
    because the run could not tell.
    """
    from gate.allowed import allowed
    from gate.cli.outputs import write_file
    from gate.conclude import conclude
    from gate.policy import load_policy
    from gate.servers import SERVERS

    policy_ = load_policy(policy or run / "policy.toml")
    concluded = conclude(run, policy_)
    manifest = concluded.records.manifest
    found = allowed(concluded.verdict, manifest, policy_, arm)
    made = [SERVERS[name](found, model or manifest.model) for name in ([server] if server else NAMES)]
    for config in made:
        if out is None:
            click.echo(config.text, nl=len(made) > 1)
        else:
            out.mkdir(parents=True, exist_ok=True)
            write_file(out / config.file, config.text.encode())
            echo(f"{out / config.file}: {config.server}, head {'on' if config.head else 'off'}")
    if not found.head:
        echo(f"gate: head off: {found.why}", err=True)
    return (
        0
        if any(config.head for config in made)
        else 3
        if not found.head and concluded.verdict.decision == "inconclusive"
        else 1
    )
