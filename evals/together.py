"""How fast a batch was as a whole: tokens of all its answers by the time from its first token to its last.

Requests in flight share the machine, so the rate of one of them says little. All of a batch were asked at once, so
their own clocks (`Answer.ttft_s`, `decode_s`) have one start.
"""

from __future__ import annotations

from collections import defaultdict

from evals.types import Answer

Place = tuple[str, int, int, int | None]
"""Arm, repeat, session, batch."""


class BatchRates:
    """Takes note of answers one by one and keeps three numbers a batch. Probes are left out; what only fills isn't."""

    def __init__(self) -> None:
        self._tokens: defaultdict[Place, int] = defaultdict(int)
        self._span: dict[Place, tuple[float, float]] = {}
        self._void: set[Place] = set()

    def add(self, answer: Answer) -> None:
        """Count an answer of a batch; one of a request alone is passed over."""
        if answer.batch is None or answer.probe in ("state", "start"):
            return
        place = place_of(answer)
        if answer.failure or answer.ttft_s is None or answer.generated is None:
            self._void.add(place)
            return
        first, last = self._span.get(place, (answer.ttft_s, 0.0))
        # an answer that came in one piece has no time after it
        self._span[place] = (min(first, answer.ttft_s), max(last, answer.ttft_s + (answer.decode_s or 0.0)))
        self._tokens[place] += answer.generated - (answer.steps[0] if answer.steps else 1)

    def rate(self, place: Place) -> float | None:
        """Tokens per second of a batch, first steps left out; None where a member failed or has no times."""
        if place in self._void or place not in self._span:
            return None
        first, last = self._span[place]
        tokens = self._tokens[place]
        return tokens / (last - first) if tokens > 0 and last > first else None


def place_of(answer: Answer) -> Place:
    """The batch that an answer was decoded in."""
    return (answer.arm, answer.repeat, answer.session, answer.batch)
