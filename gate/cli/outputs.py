"""Everything that is written of a concluded run: verdict, report, JUnit, summary, attestation; and the table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from evals.records import RunReader
from gate.cli.echo import echo
from gate.conclude import Concluded
from gate.planning import Settings
from gate.policy import Policy
from gate.verdict import encode_verdict, exit_code

if TYPE_CHECKING:
    from reports.view import View


class Shown(NamedTuple):
    """How a run is shown. sign_with: a private key in PEM, or None."""

    policy_text: str
    allow_limits: bool = False
    quiet: bool = False
    redact: bool = False
    github: bool = False
    sign_with: bytes | None = None


def conclude_and_write(
    run: Path,
    policy: Path | None,
    *,
    allow_limits: bool,
    quiet: bool,
    redact: bool,
    github: bool,
    sign_with: Path | None,
) -> int:
    """Decide a run that is there, by its own policy unless another is given, and write what is shown of it."""
    from gate.conclude import conclude
    from gate.policy import load_policy

    used = policy or run / "policy.toml"
    concluded = conclude(run, load_policy(used))
    say_torn(concluded.records)
    text = used.read_text(encoding="utf-8")
    return write_outputs(concluded, Shown(text, allow_limits, quiet, redact, github, read_key(sign_with)))


def say_torn(records: RunReader) -> None:
    """Say on stderr which of the run's records a crash or a full disk cut short."""
    for sentence in records.torn:
        echo(f"gate: {records.path}: {sentence}", err=True)


def view_of(concluded: Concluded, policy_text: str | None = None, *, redact: bool = False) -> View:
    """What is shown of a concluded run, whatever shows it."""
    from reports.build import build_view

    records = concluded.records
    return build_view(
        concluded.verdict,
        records.manifest,
        records.answers(),
        concluded.evidence.comparisons(),
        records.margins(),
        records.grades(),
        concluded.tasks,
        end=records.end,
        sandbox=records.sandbox,
        policy_text=policy_text,
        redact=redact,
    )


def write_outputs(concluded: Concluded, shown: Shown) -> int:
    """Write the files, print the verdict, return the exit code (DESIGN.md: 0, 1 or 3).

    A file that can't be written is said on stderr and makes the exit code 3: what a deploy step would read isn't there.
    """
    from gate.attestation import AttestationError, write_attestations
    from reports.github import commands
    from reports.html import render
    from reports.junit import render as junit
    from reports.markdown import render as markdown
    from reports.terminal import console, print_verdict

    records, run = concluded.records, concluded.run
    view = view_of(concluded, shown.policy_text, redact=shown.redact)
    verdict = view.verdict if shown.redact else concluded.verdict
    code = exit_code(verdict.decision, allow_limits=shown.allow_limits)
    try:
        write_file(run / "verdict.json", encode_verdict(verdict))
        try:
            write_attestations(
                run, verdict, records.manifest, private_key=shown.sign_with, passphrase=_passphrase()
            )
        except AttestationError as e:
            echo(f"gate: no attestation: {e}", err=True)
        write_file(run / "report.html", render(view).encode("utf-8", "replace"))
        write_file(run / "junit.xml", junit(view))
        write_file(run / "summary.md", markdown(view).encode("utf-8", "replace"))
    except OSError as e:
        echo(f"gate: could not write to {run}: {e.strerror or e}; the verdict below is not on disk", err=True)
        code = 3
    if shown.quiet:
        echo(f"{verdict.sentence} {verdict.what_to_do}")
    else:
        print_verdict(verdict, console(), report=str(run / "report.html"))
    if shown.github:
        for line in commands(view.verdict):
            click.echo(line)
    return code


def show_remedies(settings: Settings, concluded: Concluded, policy: Policy) -> None:
    """Try the policy's remedies on what is blocked, write remedies.json and say which would be served."""
    from gate.remedying import REMEDIES, describe, encode_remedies, find_remedies

    found = find_remedies(settings, concluded, policy, lambda text: echo(text, err=True))
    write_file(concluded.run / REMEDIES, encode_remedies(found))
    for line in describe(found) or ["no task is blocked, so no remedy was tried"]:
        echo(line)


def read_key(path: Path | None) -> bytes | None:
    """A key file's bytes. Raises click.BadParameter where it can't be read."""
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as e:
        raise click.BadParameter(
            f"expected a key in PEM at {path}, found none that can be read: {e.strerror}"
        ) from e


def _passphrase() -> bytes | None:
    text = os.environ.get("GATE_KEY_PASSPHRASE")
    return None if text is None else text.encode()


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
