"""`gate tasks`: look after task folders, the built-in ones and the user's."""

from __future__ import annotations

from pathlib import Path

import click

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
        click.echo(
            f"{task.name:16}  {task.kind:6}  {len(task.prompts)} prompts  {len(task.cases):3} cases  {task.title}"
        )


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
            click.echo(f"{task.name}: {problem.severity}: {problem.place}: {problem.message}{fix}")
        if not any(p.severity == "error" for p in problems):
            click.echo(
                f"{task.name}: gold passes {len(task.cases)} cases, {len(task.mutants)} mutants fail as they should"
            )
    return 1 if errors else 0
