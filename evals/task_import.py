"""Makes task folders of a data set: `gate tasks import`.

Rows come through `datasets` (the extra `data`): a hub id, or a local JSON-lines or parquet file. Every folder is
loaded again before it counts, so that what is written is what the loader accepts.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from evals.rows import Parts, RowError, Shape, parts, returns_none, shape_of
from tasks.errors import TaskError
from tasks.folder import MAX_TASKS, load_task

CPU_S: Final = 5.0
READERS: Final = {
    ".jsonl": "json",
    ".json": "json",
    ".jsonl.gz": "json",
    ".json.gz": "json",
    ".parquet": "parquet",
}


class ImportFailed(ValueError):
    """No task could be made; says what was expected, what was found, and what to do."""


class Skipped(msgspec.Struct, frozen=True):
    """A row of which no task was made, and why. `row` counts from 0."""

    row: int
    reason: str


class Imported(msgspec.Struct, frozen=True):
    """What was written: folders under `out` by name, and what was left out."""

    out: Path
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def import_tasks(
    source: str,
    out: Path,
    *,
    split: str = "test",
    config: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
    max_new_tokens: int = 512,
) -> Imported:
    """Write a task folder under `out` for each row of `source`, at most `limit` of them.

    split, config and revision belong to a hub id. `out` must not exist, or be empty; it appears whole or not at all.
    Raises ImportFailed where nothing can be read or made, `datasets` isn't installed, or `out` can't be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ImportFailed(f"{out}: expected a folder that isn't there yet or is empty; choose another")
    most = min(MAX_TASKS, limit or MAX_TASKS)
    names: list[str] = []
    skipped: list[Skipped] = []
    shape: Shape | None = None
    label = Path(source).name if Path(source).exists() else source
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as outer:
            made = Path(outer) / "tasks"
            for number, row in enumerate(_rows(source, split, config, revision)):
                if len(names) == most:
                    break
                shape = shape or _shape(source, row)
                try:
                    names.append(_write(made, parts(row, shape), label, max_new_tokens, names))
                except (RowError, TaskError) as error:
                    skipped.append(Skipped(number, str(error)))
            if not names:
                why = f"; row {skipped[0].row}: {skipped[0].reason}" if skipped else ""
                raise ImportFailed(
                    f"{source}: expected rows to make tasks of, found {len(skipped)} that don't fit{why}"
                )
            if out.exists():
                out.rmdir()
            made.rename(out)
    except OSError as error:
        raise ImportFailed(
            f"{out}: expected to write there, found {error.strerror or error}; choose another"
        ) from None
    return Imported(out, tuple(names), tuple(skipped))


def _rows(source: str, split: str, config: str | None, revision: str | None) -> Iterator[Mapping[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise ImportFailed("expected the package datasets, found none; install mtp-gate[data]") from None
    path = Path(source)
    try:
        if path.exists():
            suffix = next((s for s in sorted(READERS, key=len, reverse=True) if source.endswith(s)), None)
            if suffix is None:
                raise ImportFailed(
                    f"{source}: expected one of {', '.join(READERS)}, found another kind of file"
                )
            rows = datasets.load_dataset(READERS[suffix], data_files=str(path), split="train", streaming=True)
        elif (
            os.sep in source.strip(os.sep) and source.count("/") == 1 and not source.endswith(tuple(READERS))
        ):
            rows = datasets.load_dataset(source, config, split=split, revision=revision, streaming=True)
        else:
            raise ImportFailed(
                f"{source}: expected a file that is there or a hub id such as OWNER/NAME, found neither"
            )
        yield from rows
    except ImportFailed:
        raise
    except Exception as error:  # datasets raises many kinds for a file or a hub that isn't as it should be
        said = " ".join(str(error).split())[:300]
        raise ImportFailed(
            f"{source}: expected rows that can be read, found {type(error).__name__}: {said}"
        ) from None


def _shape(source: str, row: Mapping[str, Any]) -> Shape:
    try:
        return shape_of(frozenset(row))
    except RowError as error:
        raise ImportFailed(f"{source}: {error}") from None


def _write(root: Path, made: Parts, label: str, max_new_tokens: int, names: list[str]) -> str:
    if made.name in names:
        raise RowError(f"expected every row to have its own task_id, found {made.row[:60]!a} twice")
    folder = root / made.name
    fields = {
        "schema": 1,
        "name": made.name,
        "title": f"{_line(made.row, 80)}: {made.entry}",
        "summary": f"Write {made.entry} in Python; {_line(label, 120)} checks it with its own code.",
        "kind": "code",
        "judge": "checks",
        "language": "python",
        "entry": made.entry,
        "max_new_tokens": max_new_tokens,
        "cpu_s": CPU_S,
        "checks": "checks/checks.py",
        "gold": "gold/solution.py",
    }
    mutant = {"file": "mutants/returns_none.py", "fails": list(made.cases)}
    cases = [{"name": name, "why": _line(why, 300), "check": name} for name, why in made.cases.items()]
    files = {
        "task.toml": _toml(fields) + "\n[[mutant]]\n" + _toml(mutant),
        "prompts.toml": "[[prompt]]\n" + _toml({"id": "p1", "text": made.prompt}),
        "cases.jsonl": "".join(json.dumps(case) + "\n" for case in cases),
        "checks/checks.py": made.checks,
        "gold/solution.py": made.gold,
        "mutants/returns_none.py": returns_none(made),
    }
    try:
        for relative, text in files.items():
            path = folder / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        load_task(folder)
    except (UnicodeEncodeError, TaskError) as error:
        shutil.rmtree(folder)
        raise RowError(str(error).replace(f"{root}/", "")) from None
    return made.name


def _toml(fields: Mapping[str, Any]) -> str:
    """TOML of texts, numbers and lists: JSON's escapes are TOML's, but for DEL."""
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007f")
        for key, value in fields.items()
    )


def _line(text: str, limit: int) -> str:
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= limit else plain[:limit] + "…"
