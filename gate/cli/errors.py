"""From an exception to a sentence and an exit code: no traceback reaches a user for what a user can cause."""

from __future__ import annotations

import os
import sys

import click

from gate.cli.echo import echo

OURS = ("tasks", "sandbox", "evals", "gate", "reports")


def is_user_error(error: BaseException) -> bool:
    """Whether an exception's message is written for the user: by convention our own classes of ValueError, a
    sandbox that can't be had, a sample that is damaged."""
    kind = type(error)
    if kind.__module__.partition(".")[0] not in OURS:
        return False
    return isinstance(error, ValueError) or kind.__name__ in ("SandboxUnavailable", "SampleDamaged")


def could_not_write(error: BaseException) -> bool:
    """Whether a record could not be put on disk: the run had started, so the exit code is 3."""
    return type(error).__module__ == "evals.records" and type(error).__name__ == "WriteError"


def run_guarded(command: click.Command) -> int:
    """Run a click command; return its exit code. Anything unexpected is exit code 3, never a pass.

    Set GATE_DEBUG=1 to see the traceback of an internal error.
    """
    try:
        result = command.main(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("gate: interrupted", err=True)
        return 3
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    except Exception as e:
        if is_user_error(e):
            echo(f"gate: {e}", err=True)
            return 2
        if could_not_write(e):
            echo(f"gate: {e}", err=True)
            return 3
        if isinstance(e, OSError):
            echo(f"gate: {e.strerror or e}{f': {e.filename}' if e.filename else ''}", err=True)
            return 3
        echo(
            f"gate: internal error ({type(e).__name__}: {e}). This is a fault of the tool, and no verdict was given; "
            "run again with GATE_DEBUG=1 for the traceback and report it.",
            err=True,
        )
        if os.environ.get("GATE_DEBUG"):
            raise
        return 3
