"""`gate tasks`: look after task folders, the built-in ones and the user's."""

from __future__ import annotations

from pathlib import Path

import click

from gate.cli.echo import echo
from gate.cli.options import sandbox_option


@click.group("tasks")
def command() -> None:
    """Check task folders."""


@command.command("list")
@click.option("--tasks", "task_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR")
def list_tasks(task_dirs: tuple[Path, ...]) -> None:
    """List the built-in tasks, and those of --tasks DIR."""
    from tasks.folder import load_tasks

    for task in load_tasks(task_dirs):
        wordings = sum(prompt.turn == 1 for prompt in task.prompts)
        echo(f"{task.name:16}  {task.kind:6}  {wordings} prompts  {len(task.cases):3} cases  {task.title}")


@command.command("check")
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@sandbox_option
def check(folder: Path | None, sandbox_name: str | None) -> int:
    """Validate a task folder (or a folder of them): its files, its gold solution, its mutants.

    Without DIR the built-in tasks are checked. The gold solution must pass every case, and each mutant must fail
    the cases that it was made for. Exit code 0 if there is no error, 1 if there is, 2 if a folder can't be read.
    """
    from evals.task_check import check_task
    from sandbox.choose import choose
    from tasks.folder import builtin_tasks, load_tasks

    builtin = builtin_tasks()
    known = {t.name for t in builtin}
    found = builtin if folder is None else tuple(t for t in load_tasks((folder,)) if t.name not in known)
    sandbox = choose(sandbox_name)
    errors = 0
    for task in found:
        problems = check_task(task, sandbox)
        for problem in problems:
            errors += problem.severity == "error"
            fix = f" {problem.fix}" if problem.fix else ""
            echo(f"{task.name}: {problem.severity}: {problem.place}: {problem.message}{fix}")
        if not any(p.severity == "error" for p in problems):
            echo(
                f"{task.name}: gold passes {len(task.cases)} cases, {len(task.mutants)} mutants fail as they should"
            )
    return 1 if errors else 0


@command.command("import")
@click.argument("source")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A folder to be made."
)
@click.option("--split", default="test", show_default=True, help="Split of a hub data set.")
@click.option("--config", metavar="NAME", help="Configuration of a hub data set.")
@click.option("--revision", metavar="REV", help="Revision of a hub data set.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N tasks.")
@click.option("--max-new-tokens", type=click.IntRange(1, 1 << 20), default=512, show_default=True)
def import_(
    source: str,
    out: Path,
    split: str,
    config: str | None,
    revision: str | None,
    limit: int | None,
    max_new_tokens: int,
) -> int:
    """Make task folders of HumanEval- or MBPP-shaped rows.

    SOURCE is a hub id, or a local .jsonl, .jsonl.gz or .parquet file. Their checks run in a sandbox of their own.
    Needs the extra `data`: pip install 'mtp-gate[data]'.
    """
    from evals.task_import import import_tasks

    made = import_tasks(
        source,
        out,
        split=split,
        config=config,
        revision=revision,
        limit=limit,
        max_new_tokens=max_new_tokens,
    )
    for skipped in made.skipped:
        echo(f"row {skipped.row} left out: {skipped.reason}", err=True)
    echo(f"{made.out}: {len(made.names)} tasks; use them with --tasks {made.out}")
    return 0
