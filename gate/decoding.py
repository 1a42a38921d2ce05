"""Decode a plan into a run, grading meanwhile: what a check of a directory and one of servers have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from evals.cache import AnswerKey, Cache
from evals.decode import Decoding, Plan
from evals.endpoint.seat import EndpointSeat
from evals.engine.process import Patience
from evals.grade import Grader
from evals.recording import RunWriter
from evals.records import RunReader, WriteError
from evals.types import Answer, RunEnd
from gate.grading import Grading, ungraded
from gate.planning import Settings
from gate.reuse import answers_known


class Progress(Protocol):
    """What wants to know how far a check is."""

    def planned(self, answers: int, arms: tuple[str, ...]) -> None: ...
    def answered(self, answer: Answer, remaining_s: float | None) -> None: ...
    def say(self, text: str) -> None: ...


def decode_run(
    settings: Settings,
    plan: Plan,
    writer: RunWriter,
    grader: Grader,
    progress: Progress,
    cache: Cache | None,
    started: float,
    measure: Callable[[], float],
    served: Mapping[str, EndpointSeat] | None = None,
) -> tuple[str, float]:
    """Decode what is missing, grade all that isn't graded, then measure the divergences.

    measure: does so, and gives the seconds that it took. served: the seats of endpoint arms, by name. Returns why it
    was cut short ("" if it wasn't) and the engines' seconds.
    """
    left = None if settings.budget_s is None else max(settings.budget_s - (time.monotonic() - started), 0.001)
    reason, measuring_s = "", 0.0
    arms = {arm.name: arm for arm in plan.arms}
    done = set(writer.done)
    for answer in answers_known(cache, plan, writer.done) if cache else ():
        writer.answer(answer)
        done.add(answer.key)
    decoding = Decoding(
        plan,
        done=done,
        budget_s=left,
        sequential=settings.sequential,
        patience=patience_of(settings),
        served=served,
        earlier=RunReader(settings.out).answers() if done else (),
    )
    try:
        with grader:
            grading = Grading(grader, writer)
            for answer in ungraded(settings.out):
                grading.take(answer)
            with decoding:
                progress.planned(decoding.planned, tuple(a.name for a in plan.arms))
                for answer in decoding:
                    writer.answer(answer)
                    if cache and arms[answer.arm].endpoint is None:
                        cache.keep_answer(AnswerKey.of(arms[answer.arm], answer), answer)
                    progress.answered(answer, decoding.remaining_s)
                    grading.take(answer)
            if decoding.stopped:
                reason = f"the {decoding.stopped} ran out with {decoding.planned - decoding.done_count} answers to go"
            else:
                measuring_s = measure()
            grading.finish()
    except KeyboardInterrupt:
        reason = f"interrupted with {decoding.planned - decoding.done_count} answers to go"
    except WriteError as e:
        reason = str(e)
    return reason, decoding.engine_s + measuring_s


def patience_of(settings: Settings) -> Patience | None:
    """How long a silence counts as a hang, where the user says so."""
    return None if settings.hang_s is None else Patience(first_s=settings.hang_s, least_s=settings.hang_s)


def run_end(started: float, engine_s: float, after: str | None, reason: str) -> RunEnd:
    """How a run ended. started: time.monotonic() at its begin; after: the model's digest then, if there is one."""
    return RunEnd(
        complete=not reason,
        reason=reason,
        model_digest_after=after,
        wall_s=round(time.monotonic() - started, 3),
        engine_s=round(engine_s, 3),
    )
