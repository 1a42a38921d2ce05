"""Which plain arm an arm is compared with: like with like. The one place that says so."""

from __future__ import annotations

from collections.abc import Iterable

from evals.types import Arm


def base_of(arms: Iterable[Arm], arm: Arm) -> Arm | None:
    """The plain arm that `arm` is held against, or None where the run has none. A plain arm is its own base."""
    if arm.method == "plain":
        return arm
    return next((other for other in arms if other.method == "plain"), None)


def bases(arms: Iterable[Arm]) -> dict[str, str]:
    """Arm's name → its base's name, for the arms that have one."""
    every = tuple(arms)
    return {arm.name: base.name for arm in every if (base := base_of(every, arm)) is not None}
