"""A directory that is there whole or not at all: built beside its place under another name, renamed when it is done."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evals.model_dir import ModelDirError


@contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """A directory to fill, which becomes `out` when the block ends, and is removed when the block raises.

    Raises ModelDirError where `out` is there already (an empty directory may be), or can't be made.
    """
    refuse_existing(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{out.name[:100]}.partial-", dir=out.parent))
    except OSError as error:
        raise ModelDirError(
            f"{out}: cannot be made ({error.strerror or error}). Choose another --out."
        ) from error
    try:
        yield made
        made.chmod(0o755)
        refuse_existing(out)
        made.rename(out)
    except OSError as error:
        raise ModelDirError(
            f"{out}: cannot be written ({error.strerror or error}). Nothing was left there."
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def refuse_existing(out: Path) -> None:
    """Raise ModelDirError where something lies at `out` already."""
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise ModelDirError(
            f"{out}: expected nothing there yet, found something. Choose another --out, or remove it."
        )


def take_files(root: Path, names: tuple[str, ...], out: Path) -> None:
    """Put files of one directory into another: as hard links where the file system allows, as copies elsewhere."""
    for name in names:
        source, place = (root / name).resolve(), out / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, place)
        except OSError:
            shutil.copyfile(source, place)
