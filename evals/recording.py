"""Writing a run's directory: every record is on disk before the next, by one writer at a time, and a run goes on.

See `evals.records` for what the directory holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Self

import msgspec
from filelock import FileLock, Timeout

from evals.records import END, LOCK, MANIFEST, SANDBOX, STREAMS, RunReader, WriteError, torn_bytes
from evals.types import Answer, Grade, Manifest, Margin, RunEnd, SandboxReport
from evals.unanswered import set_aside

Key = tuple[str, str, str, int, int, str | None]
"""`Answer.key`"""


class RunDirError(ValueError):
    """A directory that can't hold this run: in use, not empty, or another run's. Says what to do."""


class RunWriter:
    """Writes one run. Every record is on disk before the call returns; one writer a directory at a time."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self.done: set[Key] = set()
        self.torn: tuple[str, ...] = ()
        self.asked_again = 0
        self._lock = lock
        self._files: dict[str, IO[bytes]] = {}
        self._encoder = msgspec.json.Encoder()

    @classmethod
    def create(cls, path: str | Path, manifest: Manifest) -> Self:
        """Begin a run in a directory that holds none yet. Raises RunDirError, WriteError."""
        writer = cls._locked(Path(path))
        for name in (MANIFEST, *STREAMS):
            if (writer.path / name).exists():
                writer.close()
                raise RunDirError(
                    f"{path}: expected a directory without a run, found {name} in it. Give another --out."
                )
        try:
            writer._write_whole(MANIFEST, manifest)
        except WriteError:
            writer.close()
            raise
        return writer

    @classmethod
    def resume(cls, path: str | Path, manifest: Manifest) -> Self:
        """Go on with a run: `done` holds the keys of the answers it has, `torn` what had to be cut off, `asked_again`
        how many a server had left unanswered: they are owed again.

        Raises RunDirError where it is another run (naming what differs), RecordError where its records are corrupt.
        """
        writer = cls._locked(Path(path))
        try:
            reader = RunReader(writer.path)
            if reader.manifest.identity() != manifest.identity():
                what = "; ".join(_differences(reader.manifest, manifest))
                raise RunDirError(
                    f"{path}: cannot be resumed, it is another run: {what}. Give another --out."
                )
            writer.torn = reader.torn
            for name in STREAMS:
                _cut_torn(writer.path / name)
            writer.asked_again = set_aside(writer.path)
            writer.done = {answer.key for answer in reader.answers()}
            (writer.path / END).unlink(missing_ok=True)
        except BaseException:
            writer.close()
            raise
        return writer

    @classmethod
    def regrade(cls, path: str | Path, grades: Iterable[Grade], sandbox: SandboxReport) -> int:
        """Put other grades in the place of a run's grades, all or none, and say which sandbox gave them.

        Returns how many. Raises RunDirError where the directory is in use, RecordError where it holds no run,
        WriteError.
        """
        RunReader(path)
        writer = cls._locked(Path(path))
        part, count = writer.path / "grades.jsonl.part", 0
        try:
            part.unlink(missing_ok=True)
            for grade in grades:
                writer._append(part.name, grade)
                count += 1
            part.touch()
            part.replace(writer.path / "grades.jsonl")
            writer.sandbox(sandbox)
        except OSError as error:
            raise WriteError(f"{part}: cannot be written ({error.strerror}).") from error
        finally:
            part.unlink(missing_ok=True)
            writer.close()
        return count

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what became of the records of a run that goes on."""
        again = f"{self.asked_again} answers that servers had left unanswered are asked for again"
        return (*self.torn, again) if self.asked_again else self.torn

    def answer(self, answer: Answer) -> None:
        """Append an answer. This and its like raise WriteError when the disk fails."""
        self._append("answers.jsonl", answer)

    def grade(self, grade: Grade) -> None:
        self._append("grades.jsonl", grade)

    def margin(self, margin: Margin) -> None:
        self._append("margins.jsonl", margin)

    def sandbox(self, report: SandboxReport) -> None:
        self._write_whole(SANDBOX, report)

    def end(self, end: RunEnd) -> None:
        self._write_whole(END, end)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def _locked(cls, path: Path) -> Self:
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path / LOCK)
            lock.acquire(timeout=0)
        except Timeout:
            raise RunDirError(
                f"{path}: in use by another process. Wait for it, or give another --out."
            ) from None
        except OSError as error:
            raise RunDirError(f"{path}: expected a directory that can be written, found: {error}.") from error
        return cls(path, lock)

    def _append(self, name: str, record: msgspec.Struct) -> None:
        line = self._encoder.encode(record) + b"\n"
        try:
            if name not in self._files:
                self._files[name] = (self.path / name).open("ab", buffering=0)
            file = self._files[name]
            start = os.fstat(file.fileno()).st_size
            try:
                written = 0
                while written < len(line):
                    written += file.write(line[written:])
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), start)
                raise
        except OSError as error:
            raise WriteError(
                f"{self.path / name}: cannot be written ({error.strerror}). What was recorded before is kept; free "
                "some space, and the same command goes on."
            ) from error

    def _write_whole(self, name: str, record: msgspec.Struct) -> None:
        temporary = self.path / f".{name}.part"
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.format(self._encoder.encode(record), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path / name)
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise WriteError(f"{self.path / name}: cannot be written ({error.strerror}).") from error


def _cut_torn(file: Path) -> None:
    torn = torn_bytes(file)
    if torn:
        os.truncate(file, file.stat().st_size - torn)


def _differences(old: Manifest, new: Manifest) -> list[str]:
    found = []
    if old.schema != new.schema:
        found.append(f"its records have schema {old.schema}, this version writes {new.schema}")
    before, after = ({arm.name: arm for arm in m.arms} for m in (old, new))
    if before.keys() != after.keys():
        found.append(f"its arms were {', '.join(before)}, now they are {', '.join(after)}")
    for name in sorted(before.keys() & after.keys()):
        one, two = msgspec.to_builtins(before[name]), msgspec.to_builtins(after[name])
        fields = [
            f"{field} ({_short(one[field])} then, {_short(two[field])} now)"
            for field in one
            if one[field] != two[field]
        ]
        if fields:
            found.append(f"arm {name} differs in {', '.join(fields)}")
    for field in ("tasks", "prompts", "repeats", "policy_digest", "filler_seed"):
        one, two = getattr(old, field), getattr(new, field)
        if one != two:
            names = (
                sorted(k for k in one.keys() | two.keys() if one.get(k) != two.get(k))
                if isinstance(one, dict)
                else []
            )
            found.append(f"{field} differ" + (f" for {', '.join(map(str, names[:5]))}" if names else ""))
    return found or ["its identity differs"]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}…"
