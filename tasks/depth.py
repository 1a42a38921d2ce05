"""Depths: a task behind so many tokens of filler is a task of its own, `csv@4096`, judged and reported as such."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tasks.errors import TaskError
from tasks.types import Task

LEAST: Final = 64
"""Tokens below which the lines around the filler would be most of it."""
MOST: Final = 4_000_000
MAX_DEPTHS: Final = 16


def parse_depths(text: str) -> tuple[int, ...]:
    """Depths as they are written, `512,4096,16384`, in ascending order. Raises TaskError."""
    found = [part.strip() for part in text.split(",")]
    whole = [int(part) for part in found if re.fullmatch(r"[0-9]{1,9}", part)]
    good = len(whole) == len(found) and all(LEAST <= depth <= MOST for depth in whole)
    if not good or len(set(whole)) < len(whole) or len(whole) > MAX_DEPTHS:
        raise TaskError(
            f"--depths {text[:100]!r}: expected 1 to {MAX_DEPTHS} different numbers of tokens from {LEAST} to "
            f"{MOST:,}, joined by commas, such as 512,4096,16384"
        )
    return tuple(sorted(whole))


def at_depth(task: Task, depth: int) -> Task:
    """The task behind `depth` tokens of filler. Its prompts are the same: the filler is put before them when they are
    asked (`tasks.filler`), since it depends on the model's tokenizer."""
    return msgspec.structs.replace(task, name=f"{task.name}@{depth}", depth=depth)


def base_and_depth(name: str) -> tuple[str, int | None]:
    """`csv@4096` → csv, 4096; `csv` → csv, None. A task's own name has no @."""
    base, _, depth = name.partition("@")
    return base, int(depth) if re.fullmatch(r"[0-9]{1,9}", depth) else None
