"""Loads a task from its folder, and refuses whatever could make a grade mean something else than it says.

A folder holds task.toml (what it is, how to judge), prompts.toml (the wordings), cases.jsonl (the named cases), a gold
answer and mutants. docs/writing-a-task.md describes it for people; the types are in `tasks.types`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from tasks.cases import read_cases
from tasks.errors import TaskError
from tasks.manifest import CPU_S, Manifest, read_manifest, read_prompts
from tasks.reading import digest, inside, list_files, read_text, shown
from tasks.tools import read_tools
from tasks.types import Task

__all__ = ["TaskError", "builtin_tasks", "load_task", "load_tasks", "read_file"]

MAX_TASKS: Final = 5_000


def load_task(folder: Path | str, *, builtin: bool = False) -> Task:
    """The task in `folder`. Raises TaskError, which says what is wrong, where, and what to do."""
    path = Path(folder)
    if not _is_task(path):
        raise TaskError(
            f"{path}: expected a task's folder with a task.toml, found none; name a folder that has one"
        )
    files = list_files(path)
    for needed in ("prompts.toml", "cases.jsonl"):
        if needed not in files:
            raise TaskError(f"{path}: expected the file {needed} beside task.toml, found none; add it")
    manifest = read_manifest(path)
    _files_named(path, files, manifest)
    prompts, variants = read_prompts(path, files)
    turns = max(prompt.turn for prompt in prompts)
    tools = () if manifest.tools is None else read_tools(path, manifest.tools)
    cases = read_cases(path, manifest.judge, tools, turns)
    _answers_fit(path / "task.toml", manifest, {case.name: case.turn or turns for case in cases}, turns)
    if not tools and any(prompt.role == "tool" for prompt in prompts):
        raise TaskError(
            f"{path / 'prompts.toml'}: expected tools in task.toml beside a turn that a tool says, found none; name "
            "the file that describes them"
        )
    return Task(
        name=manifest.name,
        title=manifest.title,
        summary=manifest.summary,
        kind=manifest.kind,
        judge=manifest.judge,
        language=manifest.language or "python",
        entry=manifest.entry,
        max_new_tokens=manifest.max_new_tokens,
        prompts=prompts,
        cases=cases,
        gold=manifest.golds[-1],
        mutants=tuple(manifest.mutant),
        variants=variants,
        digest=digest(path, files),
        path=path,
        builtin=builtin,
        cpu_s=manifest.cpu_s or CPU_S,
        checks=manifest.checks,
        tools=tools,
        golds=manifest.golds if turns > 1 else (),
    )


def load_tasks(dirs: Sequence[Path | str] = (), names: Sequence[str] = ()) -> tuple[Task, ...]:
    """The built-in tasks, then those of each of `dirs`; of these only `names` where any are given.

    Each of `dirs` is a task's folder or holds some. Raises TaskError for a folder that isn't a task's, for two tasks
    of one name, and for a name that no task has.
    """
    tasks: dict[str, Task] = {}
    user = itertools.chain.from_iterable(_user_tasks(Path(d)) for d in dirs)
    for task in itertools.chain(builtin_tasks(), user):
        if other := tasks.get(task.name):
            what = "the built-in task" if other.builtin else str(other.path)
            raise TaskError(
                f"{task.path / 'task.toml'}: expected a name that no other task has, found {task.name}, "
                f"which is {what}; rename this one"
            )
        tasks[task.name] = task
    unknown = [name for name in names if name not in tasks]
    if unknown:
        raise TaskError(
            f"--task: expected a task's name, found {', '.join(map(ascii, unknown))}; there are {', '.join(tasks)}"
        )
    return tuple(task for task in tasks.values() if not names or task.name in names)


def builtin_tasks() -> tuple[Task, ...]:
    """The tasks that come with the tool, sorted by name."""
    return tuple(load_task(folder, builtin=True) for folder in _task_folders(_builtin_folder()))


def read_file(task: Task, relative: str) -> str:
    """The text of a file of the task's folder, such as `task.gold`. Raises TaskError where it can't be read."""
    return read_text(task.path, relative)


def _builtin_folder() -> Path:
    return Path(str(resources.files("tasks"))) / "builtin"


def _is_task(path: Path) -> bool:
    try:
        return (path / "task.toml").exists()
    except OSError:
        return False


def _user_tasks(path: Path) -> Iterable[Task]:
    try:
        found = "" if path.is_dir() else "a file" if path.exists() else "nothing"
    except OSError as error:
        found = error.strerror or str(error)
    if found:
        raise TaskError(f"{shown(str(path), 200)}: expected a folder of tasks, found {found}; check the path")
    if _is_task(path):
        return [load_task(path)]
    folders = _task_folders(path)
    if not folders:
        raise TaskError(
            f"{path}: expected a task.toml in it or in the folders in it, found none; see gate tasks --help"
        )
    return map(load_task, folders)


def _task_folders(path: Path) -> list[Path]:
    try:
        inner = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    except OSError as error:
        raise TaskError(
            f"{path}: expected a folder that can be read, found {error.strerror or error}"
        ) from None
    if len(inner) > MAX_TASKS:
        raise TaskError(
            f"{path}: expected at most {MAX_TASKS:,} tasks, found {len(inner):,} folders; split it"
        )
    folders = [p for p in inner if _is_task(p)]
    if folders and len(folders) < len(inner):
        other = next(p for p in inner if p not in folders)
        raise TaskError(
            f"{other}: expected a task.toml as in the folders beside it, found none; "
            "add it, or move what is no task elsewhere"
        )
    return folders


def _files_named(path: Path, files: tuple[str, ...], manifest: Manifest) -> None:
    place = path / "task.toml"
    named = [
        *(("gold", gold) for gold in manifest.golds if gold),
        *(("mutant.file", m.file) for m in manifest.mutant),
    ]
    named += [(key, file) for key in ("checks", "tools") if (file := getattr(manifest, key)) is not None]
    for key, relative in named:
        if inside(path, relative) not in files:
            raise TaskError(
                f"{place}: expected {key} to name a file of the folder, found {relative!a}; add that file"
            )


def _answers_fit(place: Path, manifest: Manifest, cases: dict[str, int], turns: int) -> None:
    """Gold answers and mutants belong to the turns of the cases (case → turn)."""
    golds = manifest.golds
    judged = set(cases.values())
    if (
        not golds
        or golds[-1] == ""
        or len(golds) not in {1, turns}
        or (len(golds) == 1 and judged != {turns})
    ):
        wanted = f"one, or {turns}, one a turn," if judged == {turns} else f"{turns}, one a turn,"
        raise TaskError(
            f"{place}: expected gold to name {'one file' if turns == 1 else f'{wanted} the last of them a file'}, "
            f"found {len(golds)}; correct it"
        )
    for turn, gold in enumerate(golds, 1):
        if len(golds) == turns and (gold != "") != (turn in judged):
            raise TaskError(
                f"{place}: expected gold to name a file for each turn that has cases and '' for the others, found "
                f"{shown(gold)} for turn {turn}; correct it"
            )
    for mutant in manifest.mutant:
        if not mutant.fails or len(set(mutant.fails)) < len(mutant.fails):
            raise TaskError(
                f"{place}: expected the mutant {mutant.file} to name the cases that it must fail, each once, "
                f"found {msgspec.json.encode(mutant.fails).decode()[:200]}; correct the list"
            )
        for name in mutant.fails:
            if name not in cases:
                raise TaskError(
                    f"{place}: expected the mutant {mutant.file} to fail cases of cases.jsonl, "
                    f"found {name[:60]!a}, which is none; the cases are {', '.join(sorted(cases))[:400]}"
                )
        if len({cases[name] for name in mutant.fails}) > 1:
            raise TaskError(
                f"{place}: expected the mutant {mutant.file}, which is an answer to one turn, to fail cases of that "
                "turn, found cases of several; make it two"
            )
