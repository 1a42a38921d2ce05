"""Ages and sizes as people write them on a command line: 30d, 12h, 2GB."""

from __future__ import annotations

import re
from datetime import timedelta

_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {
    "": 1,
    "B": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}


class UnitError(ValueError):
    """An age or a size that can't be read."""


def parse_age(text: str) -> timedelta:
    """A duration: a number and one of s, m, h, d, w. Raises UnitError."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])", text.strip(), re.ASCII)
    if match is None:
        raise UnitError(f"expected an age such as 90s, 30m, 12h, 30d or 4w, found {text!r:.80}")
    try:
        return timedelta(seconds=float(match[1]) * _AGES[match[2]])
    except OverflowError as e:
        raise UnitError(f"expected an age below 2,000,000 years, found {text!r:.80}") from e


def parse_size(text: str) -> int:
    """A size in bytes: a number and a unit (B, KB, MB, GB, TB, KiB, MiB, GiB). Raises UnitError."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?i?)B?", text.strip(), re.ASCII)
    if match is None or match[2] not in _SIZES:
        raise UnitError(f"expected a size such as 500MB, 2GB or 1GiB, found {text!r:.80}")
    return int(float(match[1]) * _SIZES[match[2]])


def show_size(size: int) -> str:
    """A size for people, in decimal units."""
    for unit in ("T", "G", "M", "K"):
        if size >= _SIZES[unit]:
            return f"{size / _SIZES[unit]:.1f} {unit}B"
    return f"{size} B"
