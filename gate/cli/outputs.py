"""Everything that is written of a concluded run: verdict.json, report.html, and the table in the terminal."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gate.conclude import Concluded
from gate.verdict import encode_verdict, exit_code


def conclude_and_write(
    run: Path, policy: Path | None, *, allow_limits: bool, quiet: bool, sign_with: bytes | None = None
) -> int:
    """Decide a run that is there, by its own policy unless another is given, and write what is shown of it."""
    from gate.conclude import conclude
    from gate.policy import load_policy

    used = policy or run / "policy.toml"
    concluded = conclude(run, load_policy(used))
    return write_outputs(concluded, used.read_text(encoding="utf-8"), allow_limits=allow_limits, quiet=quiet)


def write_outputs(
    concluded: Concluded, policy_text: str, *, allow_limits: bool, quiet: bool, sign_with: bytes | None = None
) -> int:
    """Write the files, print the verdict, return the exit code (DESIGN.md: 0, 1 or 3).

    A file that can't be written is said on stderr and makes the exit code 3: what a deploy step would read isn't there.
    """
    from gate.attestation import AttestationError, write_attestations
    from reports.build import build_view
    from reports.html import render
    from reports.terminal import console, print_verdict

    records, verdict, run = concluded.records, concluded.verdict, concluded.run
    code = exit_code(verdict.decision, allow_limits=allow_limits)
    report = run / "report.html"
    try:
        write_file(run / "verdict.json", encode_verdict(verdict))
        try:
            write_attestations(run, verdict, records.manifest, private_key=sign_with)
        except AttestationError as e:
            click.echo(f"gate: no attestation: {e}", err=True)
        view = build_view(
            verdict,
            records.manifest,
            records.answers(),
            concluded.evidence.comparisons(),
            records.margins(),
            records.grades(),
            concluded.tasks,
            end=records.end,
            sandbox=records.sandbox,
            policy_text=policy_text,
        )
        write_file(report, render(view).encode("utf-8", "replace"))
    except OSError as e:
        click.echo(
            f"gate: could not write to {run}: {e.strerror or e}; the verdict below is not on disk", err=True
        )
        code = 3
    if quiet:
        click.echo(f"{verdict.decision}: {verdict.sentence}")
    else:
        print_verdict(verdict, console(), report=str(report))
    return code


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
