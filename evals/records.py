"""What a run's directory holds, and how it is read: all that is shown or decided is computed from it again.

manifest.json is there before the first answer; answers.jsonl, grades.jsonl, margins.jsonl grow line by line;
sandbox.json; end.json comes last (`evals.recording` writes them). unanswered.jsonl is there where a run went on after
servers had left questions unanswered (`evals.unanswered`). A line cut by a crash is dropped and reported, never
guessed. Records of every earlier schema can be read; those of a later one are refused in a sentence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evals.types import Answer, Grade, Manifest, Margin, RunEnd, SandboxReport
from tasks.types import Prompt

SCHEMA = 1
"""Of the records that this version writes. It grows where a record is given another meaning; a field that is added with
a default leaves it as it is."""
MANIFEST, SANDBOX, END, LOCK, PROMPTS = (
    "manifest.json",
    "sandbox.json",
    "end.json",
    "run.lock",
    "prompts.json",
)
STREAMS: dict[str, type[Any]] = {
    "answers.jsonl": Answer,
    "grades.jsonl": Grade,
    "margins.jsonl": Margin,
    "unanswered.jsonl": Answer,
}
MAX_LINE = 64 << 20
MAX_WHOLE = 64 << 20

_T = TypeVar("_T")


class RecordError(ValueError):
    """A record that can't be read: the file, the line, what was expected and found."""


class WriteError(RuntimeError):
    """The disk failed or is full. What was written before stays readable."""


class _Manifest(msgspec.Struct, frozen=True):
    """What every version's manifest has, later ones too."""

    schema: int


class RunReader:
    """Reads a run directory, finished or not. Raises RecordError for a directory that holds no run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._refuse_later()
        self.manifest: Manifest = self._whole(MANIFEST, Manifest)

    def answers(self) -> Iterator[Answer]:
        """Answers in the order in which they came, one in memory at a time. Raises RecordError at a corrupt line."""
        return self._stream("answers.jsonl", Answer)

    def grades(self) -> Iterator[Grade]:
        return self._stream("grades.jsonl", Grade)

    def margins(self) -> Iterator[Margin]:
        return self._stream("margins.jsonl", Margin)

    def unanswered(self) -> Iterator[Answer]:
        """What servers had left unanswered when the run was gone on with; asked for again since."""
        return self._stream("unanswered.jsonl", Answer)

    @cached_property
    def sandbox(self) -> SandboxReport | None:
        return self._whole(SANDBOX, SandboxReport) if (self.path / SANDBOX).exists() else None

    @cached_property
    def end(self) -> RunEnd | None:
        """None where the run was cut short before it could say so."""
        return self._whole(END, RunEnd) if (self.path / END).exists() else None

    def prompts(self) -> dict[str, tuple[Prompt, ...]]:
        """The prompts that were decoded, by task. Raises RecordError."""
        return self._whole(PROMPTS, dict[str, tuple[Prompt, ...]])

    @property
    def torn(self) -> tuple[str, ...]:
        """One sentence for each file whose last line was cut (a crash, a full disk); that line is not read."""
        found = []
        for name in STREAMS:
            size = torn_bytes(self.path / name)
            if size:
                found.append(f"{name}: the last line was cut after {size} bytes and is left out")
        return tuple(found)

    def _refuse_later(self) -> None:
        schema = self._whole(MANIFEST, _Manifest).schema
        if schema > SCHEMA:
            raise RecordError(
                f"{self.path / MANIFEST}: expected records of schema {SCHEMA} or earlier, found schema {schema}, which "
                "a later version of mtp-gate wrote. Read this run with that version."
            )

    def _whole(self, name: str, kind: type[_T]) -> _T:
        file = self.path / name
        try:
            if file.exists() and not file.is_file():
                raise RecordError(f"{file}: expected a file, found a directory, pipe or device.")
            if file.stat().st_size > MAX_WHOLE:
                raise RecordError(f"{file}: expected at most {MAX_WHOLE} bytes, found {file.stat().st_size}.")
            data = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise RecordError(
                f"{file}: expected a run's directory with a {name}, found none. Give the --out directory of a run."
            ) from None
        except OSError as error:
            raise RecordError(f"{file}: cannot be read ({error}).") from error
        return _decode(data, kind, str(file))

    def _stream(self, name: str, kind: type[_T]) -> Iterator[_T]:
        file = self.path / name
        if not file.exists():
            return
        if not file.is_file():
            raise RecordError(f"{file}: expected a file of records, found a directory, pipe or device.")
        try:
            lines = file.open("rb")
        except OSError as error:
            raise RecordError(f"{file}: cannot be read ({error.strerror}).") from error
        with lines:
            number = 0
            while line := lines.readline(MAX_LINE):
                number += 1
                if not line.endswith(b"\n"):
                    if len(line) == MAX_LINE:
                        raise RecordError(f"{file}, line {number}: expected at most {MAX_LINE} bytes.")
                    return
                yield _decode(line, kind, f"{file}, line {number}")


def torn_bytes(file: Path) -> int:
    """Bytes after the last line's end."""
    if not file.is_file():
        return 0
    with file.open("rb") as handle:
        end = at = handle.seek(0, os.SEEK_END)
        while at > 0:
            start = max(0, at - (1 << 16))
            handle.seek(start)
            found = handle.read(at - start).rfind(b"\n")
            if found >= 0:
                return end - (start + found + 1)
            at = start
    return end


def _decode(data: bytes, kind: type[_T], where: str) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"{where}: expected a record of type {_name(kind)}, found: {error}. The file was changed, or comes from "
            "another version."
        ) from error


def _name(kind: object) -> str:
    return kind.__name__.lstrip("_") if isinstance(kind, type) else str(kind)
