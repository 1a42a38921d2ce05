"""Is a divergence a near-tie? The gap in plain's logits against the width noise measured on the same build.

A token can flip where both candidates' logits move by the noise in opposite directions, hence a factor of two by
default. Ties share a rank, so rank 1 is a tie with the best whatever the gap is rounded to.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from evals.types import Margin
from gate.policy import Policy

Nearness = Literal["near", "wide", "open", "open_wide"]
"""near, wide: by evidence. open: the margin is no evidence (not reproduced). open_wide: nor is it, but the gap is far
beyond what a difference between graphs explains."""


class Reading(msgspec.Struct, frozen=True):
    """A margin read by the policy. limit: nats up to which a gap is a near-tie; noise: the quantile it comes from.

    later: index of a token after the divergence whose gap, re-scored on the arm's own text, exceeds the limit.
    """

    nearness: Nearness
    limit: float
    noise: float
    quantile: str
    later: int | None = None


def read_margin(margin: Margin | None, policy: Policy) -> Reading | None:
    """Read a margin; None where none was measured, or its noise lacks the policy's quantile.

    A server's noise holds places of width 1 too, so it is too small rather than too large: it can show that a
    divergence is a near-tie, and not that one isn't.
    """
    quantile = policy.thresholds.near_tie_quantile
    if margin is None or quantile not in margin.noise:
        return None
    noise = margin.noise[quantile]
    limit = policy.thresholds.near_tie_factor * noise
    near = margin.rank == 1 or margin.gap <= limit
    rescored = margin.rescored_max_gap
    later = margin.rescored_max_gap_at if rescored is not None and rescored > limit else None
    certain = margin.reproduced and (near or margin.source != "server")
    if certain:
        nearness: Nearness = "near" if near and later is None else "wide"
    elif margin.gap > policy.thresholds.unreproduced_gap_factor * limit and margin.rank > 1:
        nearness = "open_wide"
    else:
        nearness = "open"
    return Reading(nearness=nearness, limit=limit, noise=noise, quantile=quantile, later=later)


def describe(margin: Margin, reading: Reading) -> str:
    """Rank, gap, noise and source, for a message."""
    text = (
        f"rank {margin.rank} in plain's logits, {margin.gap:.3g} nats below the best, "
        f"limit {reading.limit:.3g} (width noise {reading.quantile} {reading.noise:.3g})"
    )
    if reading.later is not None and margin.rescored_max_gap is not None:
        text += f"; re-scored, token {reading.later} lies {margin.rescored_max_gap:.3g} nats below the best"
    if margin.source == "server":
        text += "; told by the servers, asked again" + (
            "" if margin.reproduced else ", which gave another text"
        )
    elif not margin.reproduced:
        text += f"; the {margin.source} replay did not reproduce the arm's own tokens, so this is no evidence"
    elif margin.source == "stateful":
        text += "; read from the stateful graph, not the one that was served"
    return text


def facts(margin: Margin, reading: Reading) -> dict[str, Any]:
    """The same for machines."""
    return {
        "rank": margin.rank,
        "gap": margin.gap,
        "gap_at_verify_width": margin.gap_at_verify_width,
        "movement": margin.movement,
        "noise": reading.noise,
        "noise_quantile": reading.quantile,
        "limit": reading.limit,
        "source": margin.source,
        "reproduced": margin.reproduced,
        "rescored_max_gap": margin.rescored_max_gap,
        "rescored_max_gap_at": margin.rescored_max_gap_at,
    }
