"""Decoding a plan: every prompt by every arm, interleaved round by round, answers handed on as they come.

A round is one prompt, or the whole batch that an arm has in flight at once; a batch is decoded whole or not at all.
Interleaving makes speeds comparable (drift of the machine hits all arms alike). One engine decodes at a time; all that
have as many requests in flight are loaded side by side where memory allows. An engine that crashes is started again a
few times; each answer that it owes is recorded as a failure, so nothing planned is missing in silence.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, Self

import msgspec

from evals.conversation import Conversations
from evals.endpoint.reply import Reply
from evals.endpoint.seat import EndpointSeat
from evals.engine.process import WORKERS, EngineProcess, OutOfTime, Patience
from evals.engine.protocol import Ask, Done
from evals.plan import Asked, Key, Plan, Round, Turn, levels, one_at_a_time, rounds
from evals.probes import probe_rounds
from evals.types import Answer, Arm, Failure, Finish

__all__ = ["Asked", "Decoding", "Plan"]

MAX_RESTARTS = 2
"""How often a crashed or hung engine is started again in one run, per arm."""


class Decoding:
    """Iterate over it once, as a context manager: leaving it ends the engines, whatever happened.

    done: keys of answers that exist already; a batch of which some are missing is decoded whole, and the missing ones
    are given. budget_s: seconds of wall time after which it stops (`stopped` says so);
    an answer that would overrun is given up, not recorded. sequential: one arm after another, one engine in memory at
    a time; None decides by device (off the CPU always) and by free memory. command: of every engine's process, where it
    isn't the one of its arm's engine. earlier: the answers of `done`, which later turns of conversations go on from.
    served: the seats of endpoint arms, by name. only: turns instead of the plan's.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        done: Collection[Key] = frozenset(),
        budget_s: float | None = None,
        sequential: bool | None = None,
        patience: Patience | None = None,
        command: Sequence[str] | None = None,
        earlier: Iterable[Answer] = (),
        served: Mapping[str, EndpointSeat] | None = None,
        only: Sequence[Turn] | None = None,
    ) -> None:
        self._plan = plan
        self._conversations = Conversations(plan)
        self._conversations.tell(earlier)
        self.sequential = one_at_a_time(plan) if sequential is None else sequential
        self._done = done
        every = [r for arms in levels(plan) for r in self._level(arms)]
        self._rounds = [r for r in (every if only is None else [(turn,) for turn in only]) if self._owed(r)]
        self._begun = 0
        self._budget_s = budget_s
        self._seats = {
            arm.name: _Seat(
                EngineProcess(plan.build(arm), command=command or WORKERS[arm.engine], patience=patience)
                if arm.endpoint is None
                else (served or {})[arm.name]
            )
            for arm in plan.arms
        }
        self.planned = sum(len(self._owed(r)) for r in self._rounds)
        self.done_count = 0
        self.load_s = 0.0
        self.decode_s = 0.0
        self.stopped: Literal["budget"] | None = None

    @property
    def engine_s(self) -> float:
        """Seconds of wall time in which engines were loading or decoding."""
        return self.load_s + self.decode_s

    @property
    def remaining_s(self) -> float | None:
        """Estimated seconds of decoding left; None until the first answer."""
        estimates = [self._estimate(r) for r in self._rounds[self._begun :]]
        known = [e for e in estimates if e is not None]
        return sum(known) if len(known) == len(estimates) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all engines. Safe to call twice."""
        self._conversations.close()
        for seat in self._seats.values():
            seat.engine.kill()

    def __iter__(self) -> Iterator[Answer]:
        deadline = None if self._budget_s is None else time.monotonic() + self._budget_s
        try:
            for _, level in groupby(self._rounds, key=lambda r: r[0].arm.concurrency):
                yield from self._decode(list(level), deadline)
                self.close()
        except OutOfTime:
            self.stopped = "budget"
        finally:
            self.close()

    def _level(self, arms: Sequence[Arm]) -> list[Round]:
        """The rounds of arms of one level, probes last; one arm's after the other's where engines take turns."""
        level = msgspec.structs.replace(self._plan, arms=tuple(arms))
        planned = rounds(level, self.sequential) + probe_rounds(level, arms)
        if self.sequential:
            order = [arm.name for arm in arms]
            planned.sort(key=lambda r: order.index(r[0].arm.name))
        return planned

    def _owed(self, round_: Round) -> Round:
        """The turns of a round whose answers aren't there yet."""
        return tuple(turn for turn in round_ if turn.key not in self._done)

    def _decode(self, level: list[Round], deadline: float | None) -> Iterator[Answer]:
        if not self.sequential:
            first = {r[0].arm.name: r[0].session for r in reversed(level)}
            for name, session in first.items():
                self._seats[name].enter(session)
            self._load([self._seats[name] for name in first], deadline)
        previous: _Seat | None = None
        for round_ in level:
            seat = self._seats[round_[0].arm.name]
            if self.sequential and previous is not None and previous is not seat:
                previous.engine.kill()
            previous = seat
            seat.enter(round_[0].session)
            if deadline is not None and time.monotonic() + (self._estimate(round_) or 0.0) > deadline:
                raise OutOfTime
            answers = self._answers(seat, round_, deadline)
            self._begun += 1
            self._conversations.tell(answers)
            owed = {turn.key for turn in self._owed(round_)}
            for answer in answers:
                if answer.key in owed:
                    self.done_count += 1
                    yield answer

    def _answers(self, seat: _Seat, round_: Round, deadline: float | None) -> list[Answer]:
        if not seat.built and seat.failure is None:
            self._load([seat], deadline)
        if seat.failure is not None:
            failure = seat.failure
            seat.allow_restart()
            return [_failed(turn, seat.order, failure) for turn in round_]
        whole = [self._conversations.complete(turn) for turn in round_]
        missing = next((found for found in whole if isinstance(found, Failure)), None)
        if missing is not None:
            return [_failed(turn, seat.order, missing) for turn in round_]
        round_ = tuple(turn for turn in whole if isinstance(turn, Turn))
        began = time.monotonic()
        try:
            replies = _ask(seat.engine, round_, deadline)
        finally:
            spent = time.monotonic() - began
            self.decode_s += spent
        order, seat.order = seat.order, seat.order + len(round_)
        if not any(isinstance(reply, Failure) for reply in replies):
            seat.spent.setdefault(_kind(round_), []).append(spent)
        elif not seat.engine.alive:
            seat.built, seat.failure = False, next(r for r in replies if isinstance(r, Failure))
            seat.allow_restart()
        return [
            _answer(turn, order + slot, reply, self._plan.stop_ids)
            for slot, (turn, reply) in enumerate(zip(round_, replies, strict=True))
        ]

    def _load(self, seats: Sequence[_Seat], deadline: float | None) -> None:
        """Load engines side by side; the time until the last is there counts once."""
        began = time.monotonic()
        try:
            for seat in seats:
                seat.engine.start()
            for seat in seats:
                seat.failure = seat.engine.ready(deadline)
                seat.built = seat.failure is None
                seat.order = 0
                if not seat.built:
                    seat.engine.kill()
        finally:
            self.load_s += time.monotonic() - began

    def _estimate(self, round_: Round) -> float | None:
        """Seconds for one round: the mean of its arm on its task, or of its arm, or of all rounds so far."""
        spent = self._seats[round_[0].arm.name].spent
        seen = (
            spent.get(_kind(round_))
            or [s for times in spent.values() for s in times]
            or [s for seat in self._seats.values() for times in seat.spent.values() for s in times]
        )
        return sum(seen) / len(seen) if seen else None


class _Seat:
    """An arm's engine as the plan goes on: built or not, what it died of, how often it was started again."""

    def __init__(self, engine: EngineProcess | EndpointSeat) -> None:
        self.engine = engine
        self.built = False
        self.failure: Failure | None = None
        self.restarts = 0
        self.order = 0
        self.session = 0
        self.spent: dict[str, list[float]] = {}

    def enter(self, session: int) -> None:
        """Make sure that the next answer comes from that session's process: another session is another process."""
        if session != self.session:
            self.built, self.failure, self.session = False, None, session

    def allow_restart(self) -> None:
        """After a crash or a hang was recorded: let the next turn build it anew, a few times. An error comes again."""
        if self.failure is None or self.failure.kind not in ("crash", "hang"):
            return
        if self.restarts < MAX_RESTARTS:
            self.restarts += 1
            self.failure = None
        elif not self.failure.message.startswith("not asked"):
            message = (
                f"not asked: after {self.restarts} restarts the engine failed again: {self.failure.message}"
            )
            self.failure = msgspec.structs.replace(self.failure, message=message)


def _ask(
    engine: EngineProcess | EndpointSeat, round_: Round, deadline: float | None
) -> Sequence[Done | Reply | Failure]:
    """Ask for a round, in its order: one prompt, or all at once."""
    first = round_[0]
    if isinstance(engine, EndpointSeat):
        if first.batch is not None:
            return engine.ask_all([turn.asked for turn in round_], deadline=deadline)
        whole, raw = first.probe == "whole", first.probe == "raw"
        return (engine.ask(first.asked, deadline=deadline, whole=whole, raw=raw),)
    if first.batch is None:
        asked = first.asked
        return (engine.ask(asked.text, asked.max_new_tokens, deadline=deadline, image=asked.image),)
    asks = [
        Ask(text=asked.text, max_new_tokens=asked.max_new_tokens, image=asked.image)
        for asked in (turn.asked for turn in round_)
    ]
    return engine.ask_all(asks, deadline=deadline)


def _kind(round_: Round) -> str:
    """What rounds are alike in how long they take: the prompts of a task, and batches."""
    return round_[0].asked.task if round_[0].batch is None else ""


def _answer(turn: Turn, order: int, reply: Done | Reply | Failure, stop_ids: frozenset[int]) -> Answer:
    if isinstance(reply, Failure):
        return _failed(turn, order, reply)
    if isinstance(reply, Reply):
        return reply.fill(_bare(turn, order))
    return _answered(turn, order, reply, stop_ids)


def _answered(turn: Turn, order: int, done: Done, stop_ids: frozenset[int]) -> Answer:
    finish: Finish = "unknown"
    if done.ids and done.ids[-1] in stop_ids:
        finish = "stop"
    elif len(done.ids) >= turn.asked.max_new_tokens:
        finish = "length"
    return msgspec.structs.replace(
        _bare(turn, order),
        prompt_tokens=done.prompt_tokens,
        ids=done.ids,
        text=done.text,
        streamed=done.streamed,
        steps=done.steps,
        finish=finish,
        accepted=done.accepted,
        drafted=done.drafted,
        reported_tokens=done.reported_tokens,
        ttft_s=done.ttft_s,
        decode_s=done.decode_s,
    )


def _failed(turn: Turn, order: int, failure: Failure) -> Answer:
    return msgspec.structs.replace(_bare(turn, order), failure=failure)


def _bare(turn: Turn, order: int) -> Answer:
    return Answer(
        arm=turn.arm.name,
        task=turn.asked.task,
        prompt=turn.asked.prompt,
        repeat=turn.repeat,
        prompt_sha256=turn.asked.sha256,
        prompt_tokens=0,
        max_new_tokens=turn.asked.max_new_tokens,
        order=order,
        session=turn.session,
        probe=turn.probe,
        batch=turn.batch,
    )
