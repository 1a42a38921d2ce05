"""Old runs: what lies there, how old and how large, and which of them to remove.

Only a directory that holds a run and nothing else is ever removed: a directory of a user's in which a run was once
written (`--out .`) has foreign files, and is left alone. Links are neither followed nor taken for runs, and a run that
a process is writing is left alone. The manifest goes last, so that what an interrupted removal leaves is still a run.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from filelock import FileLock, Timeout

from evals.records import END, LOCK, MANIFEST, PROMPTS, SANDBOX, STREAMS
from gate.types import Decision

RECORDS = (MANIFEST, *STREAMS, SANDBOX, END, LOCK, PROMPTS, "policy.toml")
OUTPUTS = (
    "verdict.json",
    "report.html",
    "junit.xml",
    "summary.md",
    "card.md",
    "remedies.json",
    "attestation.json",
    "attestation.svr.json",
    "answers.parquet",
)
FOLDERS = ("tasks", "tokenizer")
OURS = frozenset((*RECORDS, *OUTPUTS, *FOLDERS))
_TEMPORARY = re.compile(r"\.(.+)\.(?:\d+|part)")
"""A file that was being written when its process died."""
MAX_BYTES = 64 << 20
T = TypeVar("T")


class RunsError(ValueError):
    """A directory whose runs can't be listed: expected, found, where, what to do."""


class Run(msgspec.Struct, frozen=True):
    """A run directory. size in bytes, links not followed. foreign: names in it that no run writes."""

    path: Path
    created: datetime
    size: int
    model: str
    decision: Decision | None
    complete: bool
    foreign: tuple[str, ...] = ()


class Removal(msgspec.Struct, frozen=True):
    """What became of one run that was to be removed: removed (or, in a dry run, would be), or kept and why."""

    run: Run
    removed: bool
    why: str


class _Manifest(msgspec.Struct):
    """What every version's manifest has."""

    schema: int
    created: str
    model: str
    arms: list[msgspec.Raw]
    tasks: dict[str, str]


class _Verdict(msgspec.Struct):
    decision: Decision


class _End(msgspec.Struct):
    complete: bool


def list_runs(root: Path) -> tuple[Run, ...]:
    """The runs right below a directory, newest first. Anything else there is passed over. Raises RunsError."""
    try:
        entries = sorted(os.scandir(root), key=lambda e: e.name)
    except OSError as e:
        raise RunsError(f"expected a directory with runs in it, found none at {root}: {e.strerror}") from e
    if any(e.name == MANIFEST for e in entries) and read_run(root) is not None:
        raise RunsError(
            f"expected a directory with runs in it, found one run: {root}. Give its parent, {root.parent}"
        )
    found = (read_run(Path(e.path)) for e in entries if e.is_dir(follow_symlinks=False))
    return tuple(
        sorted((r for r in found if r is not None), key=lambda r: (r.created, r.path.name), reverse=True)
    )


def read_run(path: Path) -> Run | None:
    """The run in a directory, or None where it isn't one (or can't be read as one)."""
    manifest = _decode(path / MANIFEST, _Manifest)
    if manifest is None or not manifest.arms:
        return None
    try:
        created = datetime.fromisoformat(manifest.created)
        names = sorted(entry.name for entry in path.iterdir())
        size = sum(_sizes(path))
    except (ValueError, OSError):
        return None
    verdict, end = _decode(path / "verdict.json", _Verdict), _decode(path / END, _End)
    return Run(
        path=path,
        created=created if created.tzinfo else created.replace(tzinfo=UTC),
        size=size,
        model=manifest.model,
        decision=None if verdict is None else verdict.decision,
        complete=end is not None and end.complete,
        foreign=tuple(n for n in names if not _is_ours(n, (path / n).lstat().st_mode)),
    )


def choose(
    runs: Iterable[Run],
    now: datetime,
    *,
    older_than: timedelta | None = None,
    max_total: int | None = None,
    keep: int = 0,
) -> tuple[tuple[Run, str], ...]:
    """The runs to remove, oldest first, each with the reason. The newest `keep` stay whatever their age and size.

    older_than: remove what was made longer ago. max_total: remove the oldest until the rest has at most so many bytes;
    runs that can't be removed count too. Raises RunsError where neither is given, or a number is negative.
    """
    if (older_than is None and max_total is None) or keep < 0 or (max_total or 0) < 0:
        raise RunsError(
            "expected an age or a total size (0 or more) to prune to, and a number of runs to keep of 0 or more"
        )
    newest = sorted(runs, key=lambda r: (r.created, r.path.name), reverse=True)
    total = sum(r.size for r in newest)
    chosen = []
    for run in reversed(newest[keep:]):
        if older_than is not None and now - run.created > older_than:
            chosen.append((run, f"made {run.created:%Y-%m-%d %H:%M}, more than {older_than} ago"))
        elif max_total is not None and total > max_total:
            chosen.append((run, f"the runs have {total} bytes together, more than {max_total}"))
        else:
            continue
        total -= 0 if run.foreign else run.size
    return tuple(chosen)


def remove(run: Run, why: str, *, dry_run: bool = False) -> Removal:
    """Remove one run, looked at again first; or say why it stays. Never raises for what the directory holds."""
    now = None if run.path.is_symlink() else read_run(run.path)
    if now is None or now.created != run.created:
        return Removal(run, False, "no longer the run that it was")
    if now.foreign:
        names = ", ".join(now.foreign[:3]) + (", …" if len(now.foreign) > 3 else "")
        return Removal(
            run, False, f"holds what no run writes ({names}): move that away, or remove it yourself"
        )
    try:
        if not dry_run or (run.path / LOCK).exists():
            with FileLock(run.path / LOCK, timeout=0):
                if not dry_run:
                    _remove(run.path)
    except Timeout:
        return Removal(run, False, "a process is writing it")
    except OSError as e:
        return Removal(run, False, f"{e.strerror or e}{f': {e.filename}' if e.filename else ''}")
    return Removal(run, True, why)


def _remove(path: Path) -> None:
    """Remove a run's entries by name, in the directory that was opened, and then the directory."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        modes = {n: os.stat(n, dir_fd=fd, follow_symlinks=False).st_mode for n in os.listdir(fd)}  # noqa: PTH208
        for name in sorted(modes, key=lambda n: (n == LOCK, n == MANIFEST)):
            if not _is_ours(name, modes[name]):
                continue
            if stat.S_ISDIR(modes[name]):
                shutil.rmtree(name, dir_fd=fd)
            else:
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    path.rmdir()


def _is_ours(name: str, mode: int) -> bool:
    """Whether a run writes an entry of this name and kind."""
    match = _TEMPORARY.fullmatch(name)
    known = name in OURS or (match is not None and match[1] in OURS)
    return known and (stat.S_ISDIR(mode) if name in FOLDERS else stat.S_ISREG(mode))


def _sizes(path: Path) -> Iterable[int]:
    for folder, _, files in os.walk(path):
        for name in files:
            yield (Path(folder) / name).lstat().st_size


def _decode(path: Path, kind: type[T]) -> T | None:
    """A small JSON file of a run; None where it is absent, a link, too large, or something else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as f:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return msgspec.json.decode(f.read(MAX_BYTES), type=kind)
    except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
