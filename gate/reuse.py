"""Answers of earlier runs (`--cache DIR`): what an arm of equal identity has answered isn't decoded again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

import gate
from evals.cache import AnswerKey, Cache
from evals.plan import Plan, turns
from evals.types import Answer, Manifest
from gate.planning import Settings


def open_cache(settings: Settings, manifest: Manifest) -> Cache | None:
    """The cache that the user named, or None. Entries hold for this version and this processor. Raises CacheError."""
    if settings.cache is None:
        return None
    context = (
        f"{gate.__version__} {manifest.environment.get('processor')} {manifest.environment.get('in_force')}"
    )
    return Cache(settings.cache, context=context)


def answers_known(
    cache: Cache, plan: Plan, done: set[tuple[str, str, str, int, int, str | None]]
) -> Iterator[Answer]:
    """Answers that the cache has, of those that the plan asks for and the run has not.

    Their times are left out: they weren't measured beside the other arms of this run, so they say nothing of worth.
    """
    for turn in turns(plan, sequential=False):
        arm, task, prompt, repeat, session, probe = turn.key
        if probe is not None or turn.key in done:
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
