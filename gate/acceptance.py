"""Acceptance of drafts: totals and windows, from the runtime's own counters.

0 of 0 is not 0 %, and no counters are not 0 of 0: each has its own answer here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gate.evidence import AnswerFacts, Drafts
from gate.policy import Thresholds

CHANCE = 1e-3
"""So few accepted drafts are called a collapse where they are less likely than this at the least acceptance allowed."""

MOST = 10**9
"""Drafts of one answer beyond which a counter isn't one."""

DEEP = 4
"""K from which the later drafts of a step are mostly lost, however good the head: each stands on the one before."""


class Acceptance(msgspec.Struct, frozen=True):
    """Totals over answers; None where no answer had counters."""

    accepted: int | None
    drafted: int | None

    @property
    def rate(self) -> float | None:
        """accepted / drafted, None where nothing was drafted or it isn't known."""
        return None if not self.drafted or self.accepted is None else self.accepted / self.drafted


def acceptance(answers: Iterable[AnswerFacts]) -> Acceptance:
    """Sum the counters of those answers that have them."""
    counted = [(a.accepted, a.drafted) for a in answers if a.accepted is not None and a.drafted is not None]
    if not counted:
        return Acceptance(None, None)
    return Acceptance(sum(a for a, _ in counted), sum(d for _, d in counted))


def believed(answers: Iterable[AnswerFacts]) -> tuple[AnswerFacts, ...]:
    """The answers without those whose counters have no rate from 0 to 1, or are beyond any answer: they tell nothing,
    for or against a head."""
    return tuple(
        a for a in answers if a.accepted is None or a.drafted is None or 0 <= a.accepted <= a.drafted <= MOST
    )


def windows(pieces: Iterable[Drafts], size: int) -> list[tuple[int, int]]:
    """(accepted, drafted) of consecutive windows of at least `size` drafts; a short rest is left out."""
    out: list[tuple[int, int]] = []
    accepted = drafted = 0
    for piece in pieces:
        accepted += piece.accepted
        drafted += piece.drafted
        if drafted >= size:
            out.append((accepted, drafted))
            accepted = drafted = 0
    return out


def rest_of(pieces: Iterable[Drafts], size: int) -> tuple[int, int]:
    """(accepted, drafted) of what comes after the last whole window."""
    accepted = drafted = 0
    for piece in pieces:
        accepted += piece.accepted
        drafted += piece.drafted
        if drafted >= size:
            accepted = drafted = 0
    return accepted, drafted


def improbable(accepted: int, drafted: int, least: float) -> bool:
    """Whether so few of these drafts are accepted that a head with the acceptance `least` would hardly ever do it."""
    if not 0 <= accepted < least * drafted:
        return False
    from scipy.stats import binom

    return float(binom.cdf(float(accepted), float(drafted), min(least, 1.0))) < CHANCE


def dead_below(k: int, thresholds: Thresholds) -> float:
    """Acceptance below which a head is dead: the policy's, and beyond K = 4 as many accepted tokens a step as there."""
    return thresholds.dead_acceptance * min(1.0, DEEP / k) if k else thresholds.dead_acceptance


def in_order(answers: Sequence[AnswerFacts]) -> list[Drafts]:
    """All pieces in the order of decoding: a collapse here lasts from one request to the next."""
    return [piece for answer in answers for piece in answer.drafts]


def by_depth(answers: Sequence[AnswerFacts]) -> list[Drafts]:
    """All pieces by their distance from the start of the context: a collapse here comes with depth."""
    placed = [(answer.prompt_tokens + piece.position, piece) for answer in answers for piece in answer.drafts]
    return [piece for _, piece in sorted(placed, key=lambda pair: pair[0])]
