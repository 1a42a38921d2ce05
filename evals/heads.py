"""Another head of the same target, from another directory: `--head NAME=DIR`."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from evals.control import link_files
from evals.digest import digest_files
from evals.model_dir import GENAI_HEAD, ModelDir, ModelDirError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}\Z")


class BorrowedHead(msgspec.Struct, frozen=True):
    """A directory that links the target and another directory's head. digest: SHA-256 of the head's files."""

    name: str
    path: Path
    digest: str


def parse_head(text: str) -> tuple[str, Path]:
    """NAME=DIR of `--head`. Raises ModelDirError."""
    name, equals, path = text.partition("=")
    if not equals or not path or not _NAME.match(name):
        raise ModelDirError(
            f"--head {text[:200]!r}: expected NAME=DIR with a short name, e.g. --head int8=exports/int8."
        )
    return name, Path(path)


@contextmanager
def borrowed_head(model: ModelDir, name: str, source: Path) -> Iterator[BorrowedHead]:
    """Put a head beside a target in a temporary directory that is gone afterwards; nothing is copied.

    source: a directory with openvino_mtp_model.xml and .bin, a whole export or the two files alone. Raises
    ModelDirError.
    """
    files = tuple(f"{GENAI_HEAD[0]}.{suffix}" for suffix in ("bin", "xml"))
    for file in files:
        path = source / file
        if not path.is_file() or path.stat().st_size == 0:
            found = "an empty file" if path.is_file() else "none"
            raise ModelDirError(
                f"--head {name}: expected a head's file at {path}, found {found}. Export it again."
            )
    with tempfile.TemporaryDirectory(prefix="gate-head-") as temporary:
        directory = Path(temporary)
        link_files(model, directory, without=files)
        for file in files:
            (directory / file).symlink_to((source / file).resolve())
        yield BorrowedHead(name=name, path=directory, digest=digest_files(directory, files))
