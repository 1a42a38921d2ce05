"""Reads the recorded answers (`record.py`) that situations are made from."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from evals.tokens import TokenTable
from evals.types import Answer, Arm, Grade, Margin

FOLDER = Path(__file__).parent / "answers"
MAX_BYTES = 64 << 20

T = TypeVar("T")


Margins = Mapping[str, Margin]
"""By `divergence_key`."""


def divergence_key(base: Answer, other: Answer) -> str:
    """What a margin depends on: arm, prompt, and both answers' ids."""
    what = msgspec.json.encode((other.arm, other.task, other.prompt, base.ids, other.ids))
    return hashlib.sha256(what).hexdigest()


class About(msgspec.Struct, frozen=True):
    """Where the answers come from."""

    created: str
    model: str
    model_digest: str
    versions: dict[str, str]
    environment: dict[str, str]
    arms: tuple[Arm, ...]
    prompts: dict[str, tuple[str, ...]]
    tasks: dict[str, str]


class Measured(msgspec.Struct, frozen=True):
    """A margin and the divergence it belongs to."""

    key: str
    margin: Margin


class Recorded:
    """Answers and grades by (arm, task, prompt, repeat), margins by what they were measured on."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self.about = msgspec.json.decode((folder / "about.json").read_bytes(), type=About)
        self.answers = {(a.arm, a.task, a.prompt, a.repeat): a for a in self._read("answers", Answer)}
        self.grades = {(g.arm, g.task, g.prompt, g.repeat): g for g in self._read("grades", Grade)}
        self.measured: dict[str, Margin] = {m.key: m.margin for m in self._read("margins", Measured)}
        self.arms = {arm.name: arm for arm in self.about.arms}

    def repeats(self, arm: str, task: str, prompt: str) -> int:
        """How often an arm answered a prompt."""
        return next(n for n in range(99) if (arm, task, prompt, n) not in self.answers)

    @cached_property
    def tokens(self) -> TokenTable:
        return TokenTable.load(self.folder / "tokenizer")

    def _read(self, name: str, kind: type[T]) -> Iterator[T]:
        path = self.folder / f"{name}.jsonl.gz"
        if not path.exists():
            return
        with gzip.open(path, "rb") as lines:
            for line in lines:
                yield msgspec.json.decode(line, type=kind)
