"""Prompts as they are written, and the turns that a conversation has after its first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tasks.errors import TaskError
from tasks.reading import shown
from tasks.types import Prompt, Speaker

MAX_TURNS: Final = 32


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A later turn of a conversation: what is said after the model's answer, and by whom."""

    text: str
    role: Speaker = "user"


class WrittenPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt as prompts.toml has it; `turns` are those after the first, which is `text`."""

    id: str
    text: str
    image: str | None = None
    turns: list[Turn] = []


def as_turns(written: Sequence[WrittenPrompt], place: Path, max_characters: int) -> tuple[Prompt, ...]:
    """A prompt a turn, in order. Raises TaskError where conversations of one task differ in length, or a turn is
    empty or too long."""
    lengths = {1 + len(prompt.turns) for prompt in written}
    if len(lengths) > 1:
        raise TaskError(
            f"{place}: expected every prompt of a task to have as many turns as the others, so that each case has its "
            f"turn, found {min(lengths)} and {max(lengths)}; split the task"
        )
    if max(lengths, default=1) > MAX_TURNS:
        raise TaskError(f"{place}: expected at most {MAX_TURNS} turns, found {max(lengths)}; shorten it")
    for prompt in written:
        for number, turn in enumerate(prompt.turns, 2):
            if not turn.text.strip() or len(turn.text) > max_characters or "\0" in turn.text:
                raise TaskError(
                    f"{place}: expected turn {number} of prompt {prompt.id} to have 1 to {max_characters:,} characters "
                    f"and no NUL, found {len(turn.text):,}: {shown(turn.text)}; rewrite it"
                )
    return tuple(turn for prompt in written for turn in _turns(prompt))


def _turns(prompt: WrittenPrompt) -> Iterator[Prompt]:
    yield Prompt(id=prompt.id, text=prompt.text, image=prompt.image)
    before = prompt.id
    for number, turn in enumerate(prompt.turns, 2):
        name = f"{prompt.id}.{number}"
        yield Prompt(id=name, text=turn.text, turn=number, after=before, role=turn.role)
        before = name
