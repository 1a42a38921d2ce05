"""The command line: it only wires. Each command is a file, imported when it is asked for.

Exit codes: 0 serve; 1 do not serve; 2 it could not start (usage, configuration, a model directory that inspection
refuses); 3 it started and the evidence doesn't suffice.
"""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "check": ("gate.cli.check", "Decode, compare, grade, and say whether the head may be served."),
    "verify": ("gate.cli.verify", "Hold a model directory against an attestation, before it is deployed."),
    "serve-config": ("gate.cli.serve_config", "Write a server's configuration as a verdict allows it."),
    "inspect": (
        "gate.cli.inspect",
        "Say what a model directory holds, and refuse one whose parts don't fit.",
    ),
    "export": ("gate.cli.export", "Export a checkpoint with its head, in an environment of its own."),
    "head": ("gate.cli.head", "Rebuild a head from its checkpoint, or move it between layouts."),
    "grade": ("gate.cli.grade", "Grade and decide a run again, without decoding."),
    "report": ("gate.cli.report", "Write a run's verdict and report again, without decoding."),
    "card": ("gate.cli.card", "Print the table that a head's model card needs."),
    "compare": ("gate.cli.compare", "Say what moved between two runs."),
    "export-run": ("gate.cli.export_run", "Write a run as one parquet table."),
    "runs": ("gate.cli.runs", "List run directories, and prune old ones."),
    "tasks": ("gate.cli.tasks", "List, check and import task folders."),
    "doctor": ("gate.cli.doctor", "Say whether a run here could be trusted, and what to do if not."),
    "sandbox": ("gate.cli.sandbox", "Build the Docker sandbox's image."),
    "policy": ("gate.cli.policy", "Print the default policy, or check one."),
}


RUNS_PROGRAMS = (["check"], ["grade"], ["doctor"], ["tasks", "check"])
"""Commands that run programs in a sandbox, and want control groups for it."""


class LazyGroup(click.Group):
    """Imports a command's module only when it runs: `gate --help` stays as fast as click itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="mtp-gate", prog_name="gate")
def gate() -> None:
    """May this multi-token-prediction head be served?

    Decodes every task prompt plain and with speculation, compares byte for byte, runs generated programs in a
    sandbox, and gives a verdict per task with the reasons.

    Exit codes: 0 serve, 1 do not serve, 2 it could not start, 3 the evidence doesn't suffice.
    """


def main() -> None:
    """Entry point of the `gate` command."""
    from gate.cli.errors import run_guarded

    if any(sys.argv[1 : 1 + len(words)] == words for words in RUNS_PROGRAMS):
        from gate.cli.scope import enter_scope

        enter_scope()
    sys.exit(run_guarded(gate))
