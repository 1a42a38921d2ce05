"""`gate sandbox`: make what a backend needs."""

from __future__ import annotations

import click


@click.group("sandbox")
def command() -> None:
    """Make what a sandbox needs."""


@command.command("build")
@click.option("--host", metavar="URL", help="Docker's address (default: as the docker command finds it).")
@click.option(
    "--base", metavar="IMAGE", help="Another Debian base, e.g. a mirror's, pinned: NAME@sha256:DIGEST."
)
@click.option("--network", metavar="MODE", help="Network of the build, as `docker build --network`.")
def build(host: str | None, base: str | None, network: str | None) -> int:
    """Build the image of the Docker sandbox from the Dockerfile that comes with the tool.

    Needs the extra `docker` and a daemon that has, or can fetch, the base image and reaches a Debian mirror.
    """
    from sandbox.contract import SandboxUnavailable

    try:
        from sandbox.docker_backend import build_image
    except ModuleNotFoundError as error:
        raise SandboxUnavailable(
            f"expected docker-py, found none ({error}): pip install 'mtp-gate[docker]'"
        ) from error

    click.echo(build_image(host, base=base, network=network))
    return 0
