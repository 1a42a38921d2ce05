"""`gate sandbox`: make what a backend needs."""

from __future__ import annotations

import click


@click.group("sandbox")
def command() -> None:
    """Make what a sandbox needs."""


@command.command("build")
@click.option("--host", metavar="URL", help="Docker's address (default: as the docker command finds it).")
def build(host: str | None) -> int:
    """Build the image of the Docker sandbox from the Dockerfile that comes with the tool.

    Needs the extra `docker` and a daemon that can reach the registry of the base image.
    """
    from sandbox.docker_backend import build_image

    click.echo(build_image(host))
    return 0
