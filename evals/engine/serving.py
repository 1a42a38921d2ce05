"""What every engine's process does alike: serve the parent, keep tokens as they come, join the stream's text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from evals.engine.childside import connect
from evals.engine.protocol import Ask, AskAll, Beat, Build, Done, FromWorker, Problem, Ready, ToWorker

Beats = Callable[[int], None]
"""Told the number of tokens delivered so far."""

_BEAT_S = 0.5


class Engine(Protocol):
    """One arm, built."""

    def decode(self, ask: Ask, beat: Beats) -> Done | Problem:
        """Decode one prompt. Whatever it raises becomes a Problem, and the process lives on."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """An engine that can have several requests in flight."""

    def decode_all(self, asks: Sequence[Ask], beat: Beats) -> Sequence[Done | Problem]:
        """Decode prompts at once; a result each, in their order. What it raises ends the process, since requests would
        be left half-done."""


def serve(build_engine: Callable[[Build], Engine]) -> None:
    """Build the arm that the parent's first line names, then answer one request after another until it goes away."""
    receive, send_line = connect()
    encoder = msgspec.json.Encoder()
    decoder = msgspec.json.Decoder(ToWorker)

    def send(message: FromWorker) -> None:
        send_line(encoder.encode(message))

    build = decoder.decode(receive())
    assert isinstance(build, Build)
    try:
        engine = build_engine(build)
    except Exception as error:  # the bindings raise RuntimeError, ValueError, TypeError and others alike
        send(Problem(kind="error", message=str(error)))
        return
    send(Ready())
    while True:
        ask = decoder.decode(receive())
        if isinstance(ask, AskAll):
            assert isinstance(engine, ManyAtOnce), "this engine decodes one request at a time"
            for reply in engine.decode_all(ask.asks, lambda tokens: send(Beat(tokens=tokens))):
                send(reply)
            continue
        assert isinstance(ask, Ask)
        try:
            send(engine.decode(ask, lambda tokens: send(Beat(tokens=tokens))))
        except Exception as error:
            send(Problem(kind="error", message=str(error)))


class Delivery:
    """Tokens as they come. steps: how many came at once; times: when each step came (time.perf_counter())."""

    def __init__(self, beat: Beats) -> None:
        self.ids: list[int] = []
        self.steps: list[int] = []
        self.times: list[float] = []
        self._beat = beat
        self._next_beat = time.perf_counter() + _BEAT_S

    def take(self, tokens: Sequence[int]) -> None:
        """One step's tokens. Tells the parent at most twice a second."""
        now = time.perf_counter()
        self.ids += tokens
        self.steps.append(len(tokens))
        self.times.append(now)
        if now >= self._next_beat:
            self._next_beat = now + _BEAT_S
            self._beat(len(self.ids))

    def ttft_s(self, asked: float) -> float | None:
        """Seconds from asked (time.perf_counter()) to the first token."""
        return self.times[0] - asked if self.times else None

    @property
    def decode_s(self) -> float | None:
        """Seconds from the first token to the last."""
        return self.times[-1] - self.times[0] if self.times else None


def streamed(genai: Any, tokenizer: Any, delivery: Delivery) -> str:
    """The pieces that genai's own text streamer hands a client, step by step, joined. Run after the clock stops."""
    pieces: list[str] = []
    streamer = genai.TextStreamer(tokenizer, pieces.append)
    at = 0
    for step in delivery.steps:
        streamer.write(delivery.ids[at] if step == 1 else delivery.ids[at : at + step])
        at += step
    streamer.end()
    return "".join(pieces)
