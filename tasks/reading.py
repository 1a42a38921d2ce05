"""Reads the files of a task's folder without trusting it: nothing outside the folder, nothing endless, nothing huge.

A folder may come from anybody. A pipe in place of a file would hang a reader, a link would lead it elsewhere, and a
large file would fill memory: each is refused before it is opened or while it is read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final

from tasks.errors import TaskError

MAX_FILES: Final = 2_000
MAX_DEPTH: Final = 8
"""Folders within folders."""
MAX_FILE_BYTES: Final = 8 << 20
MAX_FOLDER_BYTES: Final = 64 << 20


def list_files(folder: Path) -> tuple[str, ...]:
    """The folder's files as sorted relative POSIX paths. Hidden ones and `__pycache__` don't belong to a task.

    Raises TaskError for a link that leads out, for what is neither file nor folder, and over the bounds above.
    """
    root = folder.resolve()
    found: list[str] = []
    total = 0
    pending: list[tuple[Path, int]] = [(folder, 1)]
    while pending:
        here, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise TaskError(f"{here}: expected at most {MAX_DEPTH} levels of folders in a task; flatten it")
        try:
            entries = sorted(os.scandir(here), key=lambda e: e.name)
        except OSError as error:
            raise TaskError(
                f"{here}: expected a folder that can be read, found {error.strerror or error}"
            ) from None
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            path = Path(entry.path)
            status = _status(path, root)
            if stat.S_ISDIR(status.st_mode):
                if entry.is_symlink():
                    raise TaskError(
                        f"{path}: expected a folder, found a link to one; copy the folder here instead"
                    )
                pending.append((path, depth + 1))
                continue
            if not stat.S_ISREG(status.st_mode):
                raise TaskError(f"{path}: expected a file, found a pipe, socket or device; remove it")
            relative = path.relative_to(folder).as_posix()
            _printable(relative, path)
            found.append(relative)
            total += status.st_size
            if status.st_size > MAX_FILE_BYTES:
                raise TaskError(
                    f"{path}: expected at most {MAX_FILE_BYTES:,} bytes, found {status.st_size:,}; make it smaller"
                )
            if len(found) > MAX_FILES or total > MAX_FOLDER_BYTES:
                raise TaskError(
                    f"{folder}: expected at most {MAX_FILES:,} files and {MAX_FOLDER_BYTES:,} bytes in a task; "
                    "remove what doesn't belong to it"
                )
    return tuple(sorted(found))


def read_bytes(folder: Path, relative: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """One file of the folder. Raises TaskError where it is outside, missing, no regular file, or over `limit` bytes."""
    path = folder / inside(folder, relative)
    _status(path, folder.resolve())
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TaskError(
            f"{path}: expected a file that can be read, found {error.strerror or error}"
        ) from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise TaskError(f"{path}: expected a file, found something else; put the file there")
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise TaskError(
                f"{path}: expected a file that can be read, found {error.strerror or error}"
            ) from None
    if len(data) > limit:
        raise TaskError(f"{path}: expected at most {limit:,} bytes, found more; make it smaller")
    return data


def read_text(folder: Path, relative: str, limit: int = MAX_FILE_BYTES) -> str:
    """One file of the folder as UTF-8 text, line ends as they are. Raises TaskError as `read_bytes` does."""
    data = read_bytes(folder, relative, limit)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TaskError(
            f"{folder / relative}, line {line}: expected UTF-8 text, found byte 0x{data[error.start]:02x}; "
            "save the file as UTF-8"
        ) from None


def digest(folder: Path, files: tuple[str, ...]) -> str:
    """SHA-256 over every file's path, size and content, in sorted order: equal digests mean equal tasks."""
    whole = hashlib.sha256()
    for relative in sorted(files):
        data = read_bytes(folder, relative)
        whole.update(f"{relative}\0{len(data)}\0".encode())
        whole.update(hashlib.sha256(data).digest())
    return whole.hexdigest()


def inside(folder: Path, relative: str) -> str:
    """`relative` as it was given, if it is a plain path that stays in `folder` and names no hidden file.

    Raises TaskError for an absolute path, `..`, a backslash, an empty or a hidden part.
    """
    parts = PurePosixPath(relative).parts if "\0" not in relative else ()
    plain = bool(parts) and not relative.startswith("/") and "\\" not in relative
    if (
        not plain
        or len(relative) > 200
        or any(part.startswith(".") or part == "__pycache__" for part in parts)
    ):
        raise TaskError(
            f"{folder}: expected a path inside the task's folder such as gold/solution.py, "
            f"found {shown(relative)}; put the file into the folder and name it from there"
        )
    return str(PurePosixPath(relative))


def shown(text: str, limit: int = 60) -> str:
    """`text` as it may stand in a message: quoted, escaped, cut."""
    cut = text if len(text) <= limit else text[:limit] + "…"
    return ascii(cut) if any(not c.isprintable() for c in cut) else repr(cut)


def _status(path: Path, root: Path) -> os.stat_result:
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TaskError(f"{path}: expected a file of the task, found {reason}; put it there") from None
    if not real.is_relative_to(root):
        raise TaskError(
            f"{path}: expected a file inside the task's folder, found a link that leads out of it; copy the file"
        )
    return status


def _printable(relative: str, path: Path) -> None:
    try:
        relative.encode("utf-8")
    except UnicodeEncodeError:
        raise TaskError(
            f"{path.parent}: expected file names in UTF-8, found {shown(relative)}; rename it"
        ) from None
