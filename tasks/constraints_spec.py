"""Which constraints a case may name and which numbers each needs. `evals.constraints` says what they mean."""

from __future__ import annotations

from typing import Final

CONSTRAINTS: Final[dict[str, tuple[str, ...]]] = {
    "words": ("min", "max"),
    "recurs": ("min",),
    "no_loop": ("n", "max_repeats"),
    "ends": (),
    "counts": ("start", "stop"),
}
"""Kind → the fields of a Case that it needs, all of them; no other number may stand beside it."""

NUMBERS: Final = ("min", "max", "n", "max_repeats", "start", "stop")
"""Every field of a Case that is some constraint's number."""

SMALLEST: Final = {"min": 0, "max": 1, "n": 1, "max_repeats": 1, "start": 0, "stop": 0}
LARGEST: Final = 1_000_000
"""Bounds of those numbers, so that no check can be asked for more than a text can hold."""
