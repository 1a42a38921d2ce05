"""From an exception to a sentence and an exit code: no traceback reaches a user for what a user can cause."""

from __future__ import annotations

import os
import sys

import click

USER_ERRORS = frozenset(
    {
        "tasks.folder.TaskError",
        "gate.policy.PolicyError",
        "evals.model_dir.ModelDirError",
        "evals.arms.ArmError",
        "evals.records.RecordError",
        "sandbox.contract.SandboxUnavailable",
        "evals.sample.SampleError",
    }
)
"""By name, so that catching one imports none of their modules. Each message says what to do; exit code 2."""


def is_user_error(error: BaseException) -> bool:
    """Whether an exception is one whose message is written for the user."""
    return any(f"{c.__module__}.{c.__qualname__}" in USER_ERRORS for c in type(error).__mro__)


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
            click.echo(f"gate: {e}", err=True)
            return 2
        if isinstance(e, OSError):
            click.echo(f"gate: {e.strerror or e}{f': {e.filename}' if e.filename else ''}", err=True)
            return 3
        click.echo(
            f"gate: internal error ({type(e).__name__}: {e}). This is a fault of the tool, and no verdict was given; "
            "run again with GATE_DEBUG=1 for the traceback and report it.",
            err=True,
        )
        if os.environ.get("GATE_DEBUG"):
            raise
        return 3
