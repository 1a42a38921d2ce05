"""How far a check is: a bar where stderr is a terminal, plain lines where it isn't, nothing where quiet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Self

from evals.types import Answer
from gate.cli.echo import echo


class TerminalProgress:
    """Shows a check's progress on stderr (`gate.check.Progress`)."""

    def __init__(self, quiet: bool):
        from reports.terminal import console

        self._quiet = quiet
        self._console = console(stderr=True, quiet=quiet)
        self._stack = contextlib.ExitStack()
        self._advance: Callable[..., Any] | None = None
        self._told = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def planned(self, answers: int, arms: tuple[str, ...]) -> None:
        """Say how many answers will be decoded, before the first."""
        from reports.terminal import decoding

        self.say(f"decoding {answers} answers with {len(arms)} arms: {', '.join(arms)}")
        bar = self._stack.enter_context(decoding(answers, self._console, quiet=self._quiet))
        self._advance = bar.advance

    def answered(self, answer: Answer, remaining_s: float | None) -> None:
        """One more answer; once there is a speed, say how long the rest will take."""
        if remaining_s is not None and not self._told:
            self._told = True
            self.say(f"about {_span(remaining_s)} to go, going by the first answers")
        if self._advance is not None:
            self._advance(arm=answer.arm, task=answer.task, prompt=answer.prompt)

    def say(self, text: str) -> None:
        """A line on stderr."""
        if not self._quiet:
            echo(text, err=True)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
