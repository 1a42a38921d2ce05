"""Several requests in flight in one continuous-batching pipeline, stepped by hand: which ids each got, at which step.

`generate` with a list hands back texts and one total of its draft counters; handles show ids and step sizes of each
request, and no draft counters. So acceptance of one among several is read off its steps (`gate.gathering`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from evals.engine.serving import Beats, Delivery

BEAT_S = 0.5


class Flight:
    """One request: its handle and what came of it. More than `limit` tokens, and it is told to stop."""

    def __init__(self, handle: Any, limit: int) -> None:
        self.handle = handle
        self.delivery = Delivery(lambda tokens: None)
        self._limit = limit
        self._stopped = False

    def take(self) -> None:
        """Keep what the last step gave it."""
        while self.handle.can_read():
            for output in self.handle.read().values():
                self.delivery.take(output.generated_ids)
        if len(self.delivery.ids) > self._limit and not self._stopped:
            self._stopped = True
            self.handle.stop()


def fly(
    pipeline: Any,
    requests: Sequence[tuple[str, list[Any], Any, int]],
    first_id: int,
    beat: Beats,
) -> list[Flight]:
    """Decode requests (text, pictures, generation config, most ids taken) together, in the order of their slots.

    first_id: number of the first request; none may be given twice in a pipeline's life. What the engine raises is the
    caller's: the pipeline holds half-done requests then and must not be used again.
    """
    flights = [
        Flight(pipeline.add_request(first_id + slot, text, *([images] if images else []), config), limit)
        for slot, (text, images, config, limit) in enumerate(requests)
    ]
    next_beat = time.perf_counter() + BEAT_S
    while pipeline.has_non_finished_requests():
        pipeline.step()
        for flight in flights:
            flight.take()
        if time.perf_counter() >= next_beat:
            next_beat = time.perf_counter() + BEAT_S
            beat(sum(len(flight.delivery.ids) for flight in flights))
    return flights
