"""A run as one parquet table, a row an answer with its comparison, grade and margin: `gate export-run RUN`.

`datasets.load_dataset("parquet", data_files=FILE)` reads it, and so do pandas, polars and DuckDB. Rows are written as
the records stream by. What an answer is joined with is found by its place in the file, so that memory grows with the
number of answers by some hundred bytes each, and not with their length. Columns: those of `evals.types.Answer`, then
`method`, `k`, `arm_identity`, `target_digest` and `head_digest` of its arm, `prompt_text` (the user's turn, before the
chat template and without the filler of a depth), and `comparison`, `grade`, `margin` (null where there is none).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from evals.arrow import arrow_type, arrow_value
from evals.bases import bases
from evals.diff import Tokens, compare
from evals.records import MAX_LINE, RecordError, RunReader
from evals.tokens import run_tokens
from evals.types import Answer, Comparison, Grade, Manifest, Margin

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 512
BATCH_BYTES = 16 << 20
"""A row group is written when it has so many rows, or records of so many bytes."""

Key = tuple[str, str, str, int]
_T = TypeVar("_T", bound=msgspec.Struct)


class ExportError(ValueError):
    """A run that can't be exported: expected, found, where, what to do."""


class _Place(msgspec.Struct, frozen=True):
    """What a record is found by."""

    arm: str
    task: str
    prompt: str
    repeat: int
    session: int = 0
    probe: str | None = None


def export_run(run: Path, out: Path, *, overwrite: bool = False) -> int:
    """Write `out` whole or not at all; return the number of rows.

    Raises ExportError where pyarrow is missing, `out` is there already or a record doesn't fit its column;
    evals.records.RecordError and evals.tokens.TokenError for a run that can't be read; OSError for a failing disk.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as e:
        raise ExportError(
            f"expected pyarrow, which writes parquet, found none ({e}): pip install 'mtp-gate[data]'"
        ) from e
    if out.exists() and not overwrite:
        raise ExportError(
            f"{out}: expected a file that isn't there yet, found one: name another, or remove it"
        )
    reader = RunReader(run)
    schema = _schema(reader.manifest)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    rows = 0
    try:
        with parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for batch in _batches(_rows(run, reader)):
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))
                rows += len(batch)
        temporary.replace(out)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
        raise ExportError(f"{run}: a record doesn't fit its column: {e}") from e
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _schema(manifest: Manifest) -> pa.Schema:
    import pyarrow as pa

    columns = list(arrow_type(Answer))
    columns += [
        pa.field(n, pa.string())
        for n in ("method", "arm_identity", "target_digest", "head_digest", "prompt_text")
    ]
    columns += [pa.field("k", pa.int64())]
    columns += [
        pa.field("comparison", arrow_type(Comparison)),
        pa.field("grade", arrow_type(Grade)),
        pa.field("margin", arrow_type(Margin)),
    ]
    return pa.schema(
        columns, metadata={"mtp_gate_run": manifest.identity(), "mtp_gate_version": manifest.tool_version}
    )


def _rows(run: Path, reader: RunReader) -> Iterator[dict[str, Any]]:
    manifest = reader.manifest
    tokens = run_tokens(run, manifest.arms)
    arms = {arm.name: arm for arm in manifest.arms}
    base_of = bases(manifest.arms)
    held = frozenset(base_of.values())
    prompts = {(task, p.id): p.text for task, asked in reader.prompts().items() for p in asked}
    with (
        _Index(run / "answers.jsonl", Answer, lambda p: p.arm in held and p.repeat == 0) as firsts,
        _Index(run / "grades.jsonl", Grade) as grades,
        _Index(run / "margins.jsonl", Margin) as margins,
    ):
        first = lru_cache(maxsize=8)(firsts.get)
        for answer in reader.answers():
            arm = arms.get(answer.arm)
            key = (answer.arm, answer.task, answer.prompt, answer.repeat)
            base = base_of.get(answer.arm)
            other = None if base is None else first((base, answer.task, answer.prompt, 0))
            probe = answer.probe is not None
            row: dict[str, Any] = arrow_value(answer)
            row |= {
                "method": arm and arm.method,
                "k": arm and arm.k,
                "arm_identity": arm and arm.identity(),
                "target_digest": arm and arm.target_digest,
                "head_digest": arm and arm.head_digest,
                "prompt_text": prompts.get((answer.task, answer.prompt)),
                "comparison": arrow_value(_compare(other, answer, tokens)),
                "grade": None if probe else arrow_value(grades.get(key)),
                "margin": None if probe else arrow_value(margins.get(key)),
            }
            yield row


def _compare(base: Answer | None, answer: Answer, tokens: Tokens) -> Comparison | None:
    """None for the base itself, where either side has no answer, and where they were asked different things."""
    if base is None or base.key == answer.key or base.failure or answer.failure:
        return None
    if base.prompt_sha256 != answer.prompt_sha256:
        return None
    return compare(base, answer, tokens)


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row["text"]) + len(row["streamed"] or "") + 8 * (len(row["ids"]) + len(row["steps"]))
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Index(Generic[_T]):
    """Where each record of a file lies, by what it is of; the first one counts. A cut last line isn't there."""

    def __init__(self, path: Path, kind: type[_T], wanted: Callable[[_Place], bool] = lambda place: True):
        self._path, self._kind, self._places = path, kind, dict[Key, int]()
        self._file = path.open("rb") if path.exists() else None
        at = 0
        while self._file is not None and (line := self._file.readline(MAX_LINE)):
            if line.endswith(b"\n"):
                place = self._decode(line, _Place)
                if place.probe is None and wanted(place):
                    self._places.setdefault((place.arm, place.task, place.prompt, place.repeat), at)
            at += len(line)

    def get(self, key: Key) -> _T | None:
        """The record of this key, read from the file. Raises RecordError."""
        at = self._places.get(key)
        if at is None or self._file is None:
            return None
        self._file.seek(at)
        record: _T = self._decode(self._file.readline(MAX_LINE), self._kind)
        return record

    def _decode(self, line: bytes, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise RecordError(
                f"{self._path}: expected a record of type {self._kind.__name__}, found: {e}"
            ) from e

    def __enter__(self) -> _Index[_T]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
