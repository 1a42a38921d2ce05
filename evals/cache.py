"""Answers and grades kept between runs (`--cache DIR`), so that what was decoded or run once isn't again.

An answer is known by its arm's identity (model digests, K, precisions, versions included), the rendered prompt, the
budget and the repeat; a grade by the task's digest, the program's and the sandbox's identity; both by a context that
the caller names (machine, tool version). What failed is never kept: a crash or an outage must be able to go away.

The cache is a help, never a condition: a broken entry is a miss, an entry that can't be written isn't kept, and both
are said. Entries are written whole or not at all, so that many processes may share a directory. They are not signed:
who may write the directory may say what was answered, so one that everybody may write is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evals.types import Answer, Arm, CaseGrade, SandboxReport

SCHEMA = 1
MAX_ENTRY_BYTES = 16 << 20
"""An answer of a million tokens has about 12 MB."""

_T = TypeVar("_T")


class CacheError(ValueError):
    """A directory that can't be a cache: expected, found, where, what to do."""


class AnswerKey(msgspec.Struct, frozen=True):
    """What makes two answers the same question. prompt_sha256 is that of the rendered prompt."""

    arm_identity: str
    prompt_sha256: str
    max_new_tokens: int
    repeat: int

    @classmethod
    def of(cls, arm: Arm, answer: Answer) -> AnswerKey:
        return cls(arm.identity(), answer.prompt_sha256, answer.max_new_tokens, answer.repeat)


class GradeKey(msgspec.Struct, frozen=True):
    """What makes two programs' grades the same. sandbox_identity: `sandbox_identity(report)`, with what else runs."""

    task_digest: str
    program_sha256: str
    sandbox_identity: str


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    key: dict[str, Any]
    value: msgspec.Raw


def sandbox_identity(report: SandboxReport) -> str:
    """SHA-256 over what a sandbox says of itself: another backend, or other limits, are another identity."""
    return _hash({"name": report.name, "describes": report.describes, "trusted": report.trusted})


class Cache:
    """A cache directory, made where it is missing. say: told in a sentence of each entry that is broken or not kept.

    Raises CacheError for a path that can't be such a directory.
    """

    def __init__(
        self, path: Path, *, context: str = "", say: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._path, self._context, self._say = path, context, say
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            mode = path.stat().st_mode
        except OSError as e:
            raise CacheError(
                f"expected a directory for the cache that can be made or read, found {path}: {e.strerror}"
            ) from e
        if mode & stat.S_IWOTH:
            raise CacheError(
                f"expected a cache that only its owner may write, found {path} open to everybody, who could put "
                f"answers and grades there: chmod o-w {path}, or name another directory"
            )

    def answer(self, key: AnswerKey, like: Answer) -> Answer | None:
        """The answer of this key, or None. `like` names it: arm, task, prompt, order, session are taken from there."""
        found = self._get("answers", key, Answer)
        if found is None:
            return None
        wrong = (found.prompt_sha256, found.max_new_tokens, found.repeat) != (
            key.prompt_sha256,
            key.max_new_tokens,
            key.repeat,
        )
        if wrong or found.failure is not None or found.probe is not None:
            self._broken("answers", key, "it is the answer to something else")
            return None
        return msgspec.structs.replace(
            found, arm=like.arm, task=like.task, prompt=like.prompt, order=like.order, session=like.session
        )

    def keep_answer(self, key: AnswerKey, answer: Answer) -> None:
        """Keep an answer; one that failed, a probe, or one of several in flight (they bear on it) is not kept."""
        if answer.failure is None and answer.probe is None and answer.batch is None:
            self._put("answers", key, answer)

    def grade(self, key: GradeKey) -> tuple[CaseGrade, ...] | None:
        """The cases of this program's grade, or None."""
        cases = self._get("grades", key, tuple[CaseGrade, ...])
        if cases is not None and not _keepable(cases):
            self._broken("grades", key, "it isn't a grade that would be kept")
            return None
        return cases

    def keep_grade(self, key: GradeKey, cases: tuple[CaseGrade, ...]) -> None:
        """Keep a program's grade; one that trouble of the machine decided (infra) is not kept."""
        if _keepable(cases):
            self._put("grades", key, cases)

    def _get(self, kind: str, key: msgspec.Struct, type_: type[_T]) -> _T | None:
        try:
            raw = _read(self._file(kind, key))
        except FileNotFoundError:
            return None
        except OSError as e:
            self._broken(kind, key, e.strerror or str(e))
            return None
        checksum, _, body = raw.partition(b"\n")
        try:
            if len(raw) > MAX_ENTRY_BYTES:
                raise ValueError(f"larger than {MAX_ENTRY_BYTES} bytes")
            if hashlib.sha256(body).hexdigest().encode() != checksum:
                raise ValueError("its bytes aren't those that were written")
            entry = msgspec.json.decode(body, type=_Entry)
            if entry.schema != SCHEMA or entry.key != self._fields(key):
                raise ValueError("it belongs to another key, or another version")
            return msgspec.json.decode(entry.value, type=type_)
        except (ValueError, RecursionError) as e:
            self._broken(kind, key, str(e))
            return None

    def _put(self, kind: str, key: msgspec.Struct, value: object) -> None:
        entry = _Entry(schema=SCHEMA, key=self._fields(key), value=msgspec.Raw(msgspec.json.encode(value)))
        body = msgspec.json.encode(entry)
        raw = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        path = self._file(kind, key)
        if len(raw) > MAX_ENTRY_BYTES:
            self._say(f"cache: an entry of {len(raw)} bytes isn't kept; at most {MAX_ENTRY_BYTES} are")
            return
        temporary = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
            with open(fd, "wb") as f:
                f.write(raw)
            Path(temporary).replace(path)
        except OSError as e:
            self._say(f"cache: {path}: can't be written ({e.strerror}); the run goes on without")
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()

    def _broken(self, kind: str, key: msgspec.Struct, why: str) -> None:
        path = self._file(kind, key)
        self._say(f"cache: {path}: left out and made again: {why}")
        with contextlib.suppress(OSError):
            path.unlink()

    def _file(self, kind: str, key: msgspec.Struct) -> Path:
        name = _hash(self._fields(key))
        return self._path / kind / name[:2] / f"{name}.json"

    def _fields(self, key: msgspec.Struct) -> dict[str, Any]:
        return {**msgspec.structs.asdict(key), "context": self._context}


def _keepable(cases: tuple[CaseGrade, ...]) -> bool:
    return bool(cases) and all(c.outcome != "infra" for c in cases)


def _read(path: Path) -> bytes:
    """A regular file's bytes, one more than an entry may have at most. Raises OSError, for a link or a pipe too."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as f:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file")
        return f.read(MAX_ENTRY_BYTES + 1)


def _hash(fields: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()
