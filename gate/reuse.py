"""Answers and grades of earlier runs (`--cache DIR`): what an arm of equal identity has answered isn't decoded again,
and a program that this sandbox has run isn't run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

import gate
from evals.cache import AnswerKey, Cache, GradeKey, sandbox_identity
from evals.plan import Plan, rounds
from evals.types import Answer, CaseGrade, Manifest, SandboxReport
from gate.planning import Settings
from sandbox.interpreters import identity
from tasks.types import Task


def open_cache(settings: Settings, manifest: Manifest, say: Callable[[str], None]) -> Cache | None:
    """The cache that the user named, or None. Entries hold for this version and this processor. Raises CacheError."""
    if settings.cache is None:
        return None
    context = (
        f"{gate.__version__} {manifest.environment.get('processor')} {manifest.environment.get('in_force')}"
    )
    return Cache(settings.cache, context=context, say=say)


class KnownGrades:
    """Grades that a cache has of programs that this sandbox ran, with this machine's interpreters (`evals.grade`)."""

    def __init__(self, cache: Cache, report: SandboxReport) -> None:
        self._cache, self._sandbox = cache, sandbox_identity(report)

    def get(self, task: Task, program_sha256: str) -> tuple[CaseGrade, ...] | None:
        """The program's cases, or None; one that doesn't have the task's cases in their order isn't believed."""
        cases = self._cache.grade(self._key(task, program_sha256))
        if cases is None or [c.case for c in cases] != [c.name for c in task.cases]:
            return None
        return cases

    def keep(self, task: Task, program_sha256: str, cases: tuple[CaseGrade, ...]) -> None:
        """Keep a grade; the cache leaves out those that trouble of the machine decided."""
        self._cache.keep_grade(self._key(task, program_sha256), cases)

    def _key(self, task: Task, program_sha256: str) -> GradeKey:
        return GradeKey(task.digest, program_sha256, f"{self._sandbox} {identity(task.language)}")


def answers_known(
    cache: Cache, plan: Plan, done: set[tuple[str, str, str, int, int, str | None]]
) -> Iterator[Answer]:
    """Answers that the cache has, of those that the plan asks for and the run has not.

    Their times are left out: they weren't measured beside the other arms of this run, so they say nothing of worth.
    """
    for turn in (turn for round_ in rounds(plan, sequential=False) for turn in round_):
        arm, task, prompt, repeat, session, probe = turn.key
        unasked = turn.asked.after is not None  # its text depends on what the arm answers before it
        served = turn.arm.endpoint is not None  # nobody knows whether the same answers there as then
        if probe is not None or turn.batch is not None or unasked or served or turn.key in done:
            continue
        like = Answer(
            arm=arm,
            task=task,
            prompt=prompt,
            repeat=repeat,
            session=session,
            prompt_sha256=turn.asked.sha256,
            prompt_tokens=0,
            max_new_tokens=turn.asked.max_new_tokens,
        )
        found = cache.answer(AnswerKey.of(turn.arm, like), like)
        if found is not None:
            yield msgspec.structs.replace(found, cached=True, ttft_s=None, decode_s=None)
