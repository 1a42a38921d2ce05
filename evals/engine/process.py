"""The parent's handle on one engine: start it, ask it, and say what became of it when it doesn't answer.

A crash (with its signal), a hang and an engine's own error come back as `Failure`, never as an exception.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from evals.engine.child import Child, OutOfTime, Stage, essence
from evals.engine.protocol import Ask, AskAll, Beat, Build, Done, FromWorker, Problem, Ready
from evals.engines import GENAI, SPLIT
from evals.types import Failure

__all__ = ["WORKER", "WORKERS", "EngineProcess", "OutOfTime", "Patience"]

WORKER: tuple[str, ...] = (sys.executable, "-P", "-m", "evals.engine.worker")
"""The command of openvino-genai's process; two file descriptors (to read, to write) are appended."""

WORKERS: dict[str, tuple[str, ...]] = {GENAI: WORKER, SPLIT: (*WORKER[:-1], "evals.engine.split")}
"""`Arm.engine` → the command of its process. Every worker speaks `evals.engine.protocol`."""


class Patience(msgspec.Struct, frozen=True):
    """How long an engine may be silent, in seconds, before it counts as hung.

    build_s: until it is built. first_s: until the first sign of life of its first answer. After that `factor` times
    the longest silence seen so far, at least `least_s`: a slow machine isn't a hung one.
    """

    build_s: float = 1800.0
    first_s: float = 600.0
    least_s: float = 60.0
    factor: float = 30.0


class EngineProcess:
    """One arm's engine in a process of its own; start it from the thread that will outlive it (it dies with it)."""

    def __init__(
        self, build: Build, *, command: Sequence[str] = WORKER, patience: Patience | None = None
    ) -> None:
        self._build = build
        self._child = Child(command)
        self._patience = patience or Patience()
        self._decoder = msgspec.json.Decoder(FromWorker)
        self._longest_silence: float | None = None
        self._started = 0.0

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def start(self) -> None:
        """Start the process and hand it its arm; returns at once, so that several can load side by side."""
        self._child.start()
        self._longest_silence = None
        self._started = time.monotonic()
        self._child.send(msgspec.json.encode(self._build))

    def ready(self, deadline: float | None = None) -> Failure | None:
        """Wait until the arm is built; what went wrong, or None. OutOfTime when deadline (time.monotonic()) passes."""
        limit = self._started + self._patience.build_s - time.monotonic()
        message = self._receive("build", max(0.0, limit), deadline)
        if isinstance(message, Ready):
            return None
        return message if isinstance(message, Failure) else self._broken(message, "build")

    def ask(
        self,
        text: str,
        max_new_tokens: int,
        *,
        deadline: float | None = None,
        on_beat: Callable[[int], None] | None = None,
        image: bytes | None = None,
    ) -> Done | Failure:
        """Decode one rendered prompt, with its picture if it has one.

        on_beat: told the number of tokens delivered so far, at most twice a second. Raises OutOfTime when deadline
        (time.monotonic()) passes; the engine is killed then.
        """
        self._child.send(msgspec.json.encode(Ask(text=text, max_new_tokens=max_new_tokens, image=image)))
        return self._reply(deadline, on_beat)

    def ask_all(self, asks: Sequence[Ask], *, deadline: float | None = None) -> list[Done | Failure]:
        """Decode rendered prompts at once; what became of each, in their order. What ends the engine is each one's
        failure. Raises OutOfTime as `ask` does.
        """
        self._child.send(msgspec.json.encode(AskAll(asks=tuple(asks))))
        replies: list[Done | Failure] = []
        while len(replies) < len(asks):
            reply = self._reply(deadline, None)
            if isinstance(reply, Failure) and not self.alive:
                return [reply] * len(asks)
            replies.append(reply)
        return replies

    def _reply(self, deadline: float | None, on_beat: Callable[[int], None] | None) -> Done | Failure:
        while True:
            asked = time.monotonic()
            message = self._receive("decode", self._allowed_silence(), deadline)
            if isinstance(message, Beat | Done):
                self._longest_silence = max(self._longest_silence or 0.0, time.monotonic() - asked)
            if isinstance(message, Done | Failure):
                return message
            if not isinstance(message, Beat):
                return self._broken(message, "decode")
            if on_beat is not None:
                on_beat(message.tokens)

    def kill(self) -> None:
        """End the process and all that it started. Safe to call twice, and on one that never started."""
        self._child.kill()

    def _allowed_silence(self) -> float:
        if self._longest_silence is None:
            return self._patience.first_s
        return max(self._patience.least_s, self._patience.factor * self._longest_silence)

    def _receive(self, stage: Stage, limit_s: float, deadline: float | None) -> FromWorker | Failure:
        line = self._child.receive(stage, limit_s, deadline)
        if isinstance(line, Failure):
            return line
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._child.garbled(stage, str(error))

    def _broken(self, message: FromWorker, stage: Stage) -> Failure:
        if isinstance(message, Problem):
            return Failure(kind=message.kind, message=essence(message.message), stage=stage)
        return self._child.garbled(stage, f"an unexpected {type(message).__name__}")
