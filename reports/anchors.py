"""Gives each place of a report an id that is unique and fit for a URL, whatever tasks and prompts are called."""

from __future__ import annotations

import re


class Anchors:
    """`make` an id for a task, a prompt of it, or an arm's answer to that; `nearest` finds the place of a finding."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._at: dict[tuple[str | None, str | None, str | None], str] = {}

    def make(self, task: str, prompt: str | None = None, arm: str | None = None) -> str:
        parts = [part for part in (task, prompt, arm) if part is not None]
        stem = "task-" + "--".join(
            re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") or "x" for part in parts
        )
        anchor, n = stem[:80], 2
        while anchor in self._taken:
            anchor, n = f"{stem[:72]}-{n}", n + 1
        self._taken.add(anchor)
        self._at.setdefault((task, prompt, arm), anchor)
        return anchor

    def nearest(self, task: str | None, prompt: str | None, arm: str | None) -> str | None:
        """The id of the narrowest place that was made for these; None where even the task has none."""
        places = ((task, prompt, arm), (task, prompt, None), (task, None, None))
        return next((self._at[place] for place in places if place in self._at), None)
