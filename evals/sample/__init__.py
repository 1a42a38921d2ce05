"""The bundled sample: a small Qwen3.5 with an MTP head as OpenVINO IR, so that a run needs no download.

MODEL_CARD.md says what it is and how it was made; SHA256SUMS holds its files' digests.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


class SampleDamaged(RuntimeError):
    """The bundled sample isn't what was shipped."""


def sample_dir() -> Path:
    """Return the directory of the sample model, once a process has found all its files as they were shipped.

    Raises SampleDamaged where a file is missing or differs from SHA256SUMS.
    """
    return _checked(HERE)


@cache
def _checked(folder: Path) -> Path:
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        expected, _, name = line.partition("  ")
        path = folder / name
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            found = f"nothing ({error.strerror})"
        if found != expected:
            raise SampleDamaged(
                f"The bundled sample model is damaged: expected SHA-256 {expected}, found {found}, in {path}. "
                "Install mtp-gate again, or name another model directory with --model."
            )
    return folder / "int4"
