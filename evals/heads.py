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
from evals.inspection.pairing import require_pairing
from evals.model_dir import (
    GENAI_HEAD,
    HeadLayout,
    ModelDir,
    ModelDirError,
    check_graph,
    head_stems,
    list_files,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}\Z")


class BorrowedHead(msgspec.Struct, frozen=True):
    """A directory that links the target and another directory's head. digest: SHA-256 of the head's files."""

    name: str
    path: Path
    digest: str
    layout: HeadLayout


def parse_head(text: str) -> tuple[str, Path]:
    """NAME=DIR of `--head`. Raises ModelDirError."""
    name, equals, path = text.partition("=")
    if not equals or not path or not _NAME.match(name):
        raise ModelDirError(
            f"--head {text[:200]!r}: expected NAME=DIR with a short name, e.g. --head int8=exports/int8."
        )
    return name, Path(path)


@contextmanager
def borrowed_head(
    model: ModelDir, name: str, source: Path, layout: HeadLayout | None = None
) -> Iterator[BorrowedHead]:
    """Put a head beside a target in a temporary directory that is gone afterwards; nothing is copied.

    source: a directory with a head in either layout, a whole export or the head's files alone. layout: which head to
    take where it has two. Raises ModelDirError where there is no whole head, or none that fits by its shapes.
    """
    sizes = list_files(source)
    stems = head_stems(source, sizes, layout)
    stems = stems or GENAI_HEAD
    files = tuple(f"{stem}.{suffix}" for stem in stems for suffix in ("bin", "xml"))
    for file in files:
        if not sizes.get(file):
            found = "an empty file" if file in sizes else "none"
            raise ModelDirError(
                f"--head {name}: expected a head's file at {source / file}, found {found}. Export it again."
            )
    for stem in stems:
        check_graph(source, stem, sizes)
    lm_head = stems[1] if len(stems) > 1 else None
    require_pairing(msgspec.structs.replace(model, layer=stems[0], lm_head=lm_head), head_at=source)
    with tempfile.TemporaryDirectory(prefix="gate-head-") as temporary:
        directory = Path(temporary)
        link_files(model, directory, without=model.head_files)
        for file in files:
            (directory / file).symlink_to((source / file).resolve())
        yield BorrowedHead(
            name=name,
            path=directory,
            digest=digest_files(directory, files),
            layout="genai" if lm_head is None else "split",
        )
