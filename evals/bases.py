"""Which plain arm an arm is compared with: like with like. The one place that says so."""

from __future__ import annotations

from collections.abc import Iterable

from evals.types import Arm


def base_of(arms: Iterable[Arm], arm: Arm) -> Arm | None:
    """The plain arm with as many requests in flight, or None where the run has none. A plain arm is its own base."""
    if arm.method == "plain":
        return arm
    alike = (o for o in arms if o.method == "plain" and o.concurrency == arm.concurrency)
    return next(alike, None)


def alone(arms: Iterable[Arm], plain: Arm) -> Arm | None:
    """The plain arm that decodes the same prompts one at a time, or None where the run has none, or `plain` is it."""
    if plain.concurrency == 1:
        return None
    return next((o for o in arms if o.method == "plain" and o.concurrency == 1), None)


def bases(arms: Iterable[Arm]) -> dict[str, str]:
    """Arm's name → its base's name, for the arms that have one."""
    every = tuple(arms)
    return {arm.name: base.name for arm in every if (base := base_of(every, arm)) is not None}
