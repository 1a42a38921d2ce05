"""`gate doctor`: can a run on this machine be trusted, and if not, what to do."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import click

ENGINE_PACKAGES = ("openvino", "openvino-genai", "openvino-tokenizers", "transformers", "tokenizers")
DEVICES = """
import openvino
core = openvino.Core()
for device in core.available_devices:
    print(device, core.get_property(device, "FULL_DEVICE_NAME"))
"""


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def command(as_json: bool) -> int:
    """Print versions, devices, and the sandbox that would be used with every probe's result.

    Exit code 0 only if a run could be trusted; otherwise 3, with what to install or enable.
    """
    import msgspec

    from sandbox.doctor import examine

    versions = {name: _version(name) for name in ENGINE_PACKAGES}
    devices, complaint = _devices()
    report = examine()
    trusted = report.trusted and bool(devices) and all(versions.values())
    if as_json:
        found = {
            "trusted": trusted,
            "versions": versions,
            "devices": devices,
            "sandbox": msgspec.to_builtins(report),
        }
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return 0 if trusted else 3
    for name, number in versions.items():
        click.echo(f"package   {name} {number or 'is missing: install mtp-gate again'}")
    for device in devices or (f"none: {complaint}",):
        click.echo(f"device    {device}")
    for key, value in report.system.items():
        click.echo(f"system    {key}: {value}")
    for language in report.languages:
        click.echo(f"language  {language.name}: {language.version or language.missing}")
    for backend in report.backends:
        state = "trusted" if backend.trusted else f"can't be used: {backend.unavailable or 'a probe failed'}"
        click.echo(
            f"sandbox   {backend.name}: {state}{' (a run would use it)' if backend.name == report.chosen else ''}"
        )
        for key, value in backend.facts.items():
            click.echo(f"            {key}: {value}")
        for probe in backend.probes:
            click.echo(f"            {'ok  ' if probe.passed else 'FAIL'} {probe.name}: {probe.found}")
    for advice in report.advice:
        click.echo(f"to do     {advice}")
    click.echo("a run could be trusted" if trusted else "a run could not be trusted")
    return 0 if trusted else 3


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _devices() -> tuple[tuple[str, ...], str]:
    """OpenVINO's devices as a child process sees them, and what it said where there is none."""
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", DEVICES], capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return (), "openvino did not answer within 120 s"
    lines = tuple(child.stdout.splitlines()) if child.returncode == 0 else ()
    return lines, child.stderr.strip()[-300:]
