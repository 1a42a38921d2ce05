"""Making things of ours reachable for the uid that is dropped to.

A virtual environment or an interpreter often lies under a home of mode 0700. Then what is needed is copied to a
directory of our own, which root alone can write and everyone can enter.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sandbox.contract import SandboxUnavailable


def by_others(path: Path) -> bool:
    """True if any user may execute the file or enter the directory: so may they every directory above it."""
    path = path.resolve()
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def copies(of: Iterable[tuple[Path, str]], *, skip: frozenset[str] = frozenset()) -> Path:
    """A fresh directory with copies of files and folders under the given relative names; symlinks are followed.

    skip: names of folders to leave out. The caller removes it. Raises SandboxUnavailable where there is no place.
    """
    sources = list(of)
    for base in ("/run", "/var/tmp", None):  # noqa: S108 (mkdtemp makes a name of our own)
        try:
            target = Path(tempfile.mkdtemp(prefix=f"mtp-gate-{os.getpid()}-", dir=base))
        except OSError:
            continue
        if not os.statvfs(target).f_flag & os.ST_NOEXEC and by_others(target.parent):
            try:
                for source, name in sources:
                    _copy(source, target / name, skip)
                for part in (target, *target.rglob("*")):
                    part.chmod(0o755)
                return target
            except OSError:
                pass
        shutil.rmtree(target, ignore_errors=True)
    raise SandboxUnavailable(
        "expected a directory in /run, /var/tmp or TMPDIR from which others can start a program"
    )


def _copy(source: Path, target: Path, skip: frozenset[str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(
            source, target, ignore=lambda _, names: skip & set(names), ignore_dangling_symlinks=True
        )
    else:
        shutil.copyfile(source, target)
