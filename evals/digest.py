"""The bytes that a verdict speaks of: SHA-256 of target, head and whole directory, taken before and after a run.

`hashlib.file_digest` over a sorted manifest. model-signing 1.1.1 was looked at: importing its hashing imports its
signing too (sigstore, cryptography, in-toto), more than all the rest of the base install together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from evals.model_dir import ModelDir, ModelDirError, list_files, of_a_head


class ModelDigests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SHA-256, in hex, of a model directory's parts. head is None where the directory has none.

    files: relative name → SHA-256. A part's digest is that of its manifest: for each file in order of name, the file's
    digest, its size and its name, ended by NUL. Hidden files and where a link points are left out.
    """

    whole: str
    target: str
    head: str | None
    files: dict[str, str]


def digest_model(model: ModelDir) -> ModelDigests:
    """Digest a directory that `inspect_model` accepted. Raises ModelDirError where a file can't be read."""
    entries = _entries(model.path)
    head = model.head_files
    return ModelDigests(
        whole=_manifest_digest(entries.values()),
        target=_manifest_digest(line for name, line in entries.items() if not of_a_head(name)),
        head=_manifest_digest(entries[name] for name in sorted(head) if name in entries) if head else None,
        files={name: line[:64].decode() for name, line in entries.items()},
    )


def digest_dir(path: str | Path) -> str:
    """SHA-256 over all files of a directory, equal to ModelDigests.whole. Raises ModelDirError."""
    return _manifest_digest(_entries(Path(path)).values())


def digest_files(root: Path, names: Iterable[str]) -> str:
    """SHA-256 over some files of a directory; equal to ModelDigests.head for the head's. Raises ModelDirError."""
    try:
        return _manifest_digest(_entry(root, name, (root / name).stat().st_size) for name in sorted(names))
    except OSError as error:
        raise ModelDirError(f"{root}: a file cannot be read ({error}). Check its permissions.") from error


def changed_files(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """Names that are new, gone or of other content between two `ModelDigests.files`."""
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _entries(root: Path) -> dict[str, bytes]:
    sizes = list_files(root)
    names = sorted(sizes)
    try:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            lines = list(pool.map(lambda name: _entry(root, name, sizes[name]), names))
    except OSError as error:
        raise ModelDirError(f"{root}: a file cannot be read ({error}). Check its permissions.") from error
    return dict(zip(names, lines, strict=True))


def _entry(root: Path, name: str, size: int) -> bytes:
    """A file's line in the manifest."""
    with (root / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return b"%s %d %s\0" % (digest.encode(), size, os.fsencode(name))


def _manifest_digest(lines: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line)
    return digest.hexdigest()
