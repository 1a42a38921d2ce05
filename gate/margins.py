"""Is a divergence a near-tie? The gap in plain's logits against the width noise measured on the same build.

A token can flip where both candidates' logits move by the noise in opposite directions, hence a factor of two by
default. Ties share a rank, so rank 1 is a tie with the best whatever the gap is rounded to.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from evals.types import Divergence, Margin
from gate.policy import Policy

Nearness = Literal["near", "wide", "open", "open_wide"]
"""near, wide: by evidence. open: the margin is no evidence (not reproduced). open_wide: nor is it, but the gap is far
beyond what a difference between graphs explains."""


class Reading(msgspec.Struct, frozen=True):
    """A margin read by the policy. limit: nats up to which a gap is a near-tie; noise: the quantile it comes from.

    later: index of a token after the divergence whose gap, re-scored on the arm's own text, exceeds the limit.
    amiss: what keeps the margin from being evidence though it was measured; "" where nothing does.
    """

    nearness: Nearness
    limit: float
    noise: float
    quantile: str
    later: int | None = None
    amiss: str = ""


def read_margin(
    margin: Margin | None, policy: Policy, divergence: Divergence | None = None
) -> Reading | None:
    """Read the margin of a divergence; None where none was measured, or a server told too little to have a noise.

    A server's noise holds places of width 1 too, so it is too small rather than too large: it can show that a
    divergence is a near-tie, and not that one isn't. Where the policy's quantile is missing, what else is known of the
    noise only tells whether the gap is far too wide; where nothing is, whether the greatest noise that the policy
    believes could explain it.
    """
    if margin is None:
        return None
    quantile = policy.thresholds.near_tie_quantile
    measured = {**margin.noise, "movement here": margin.movement}
    known = {name: value for name, value in measured.items() if value is not None and 0 <= value < math.inf}
    if not known and margin.source == "server":
        return None
    name = quantile if quantile in known else max(known, key=lambda n: known[n], default="unknown")
    noise = known.get(name, 0.0)
    limit = policy.thresholds.near_tie_factor * noise
    far = policy.thresholds.unreproduced_gap_factor * limit
    if not known:
        far = policy.thresholds.near_tie_factor * policy.thresholds.max_width_noise
    near = margin.rank == 1 or margin.gap <= limit
    rescored = margin.rescored_max_gap
    beyond = rescored is not None and not rescored <= limit
    later = margin.rescored_max_gap_at if beyond else None
    amiss = _amiss(margin, divergence)
    at_width = margin.gap_at_verify_width or 0.0
    no_yardstick = near and (noise > policy.thresholds.max_width_noise or 0 < far < at_width)
    if no_yardstick:
        amiss = (
            amiss or f"noise of {noise:.3g} nats, and {at_width:.3g} nats below the best at the verify width"
        )
    if name != quantile:
        amiss = amiss or f"no width noise {quantile} is on record"
    if not amiss and margin.reproduced and (near or margin.source != "server"):
        nearness: Nearness = "near" if near and not beyond else "wide"
    elif no_yardstick or not math.isfinite(margin.gap) or (margin.gap > far and margin.rank != 1):
        nearness = "open_wide"
    else:
        nearness = "open"
    return Reading(nearness=nearness, limit=limit, noise=noise, quantile=name, later=later, amiss=amiss)


def _amiss(margin: Margin, divergence: Divergence | None) -> str:
    """Why a margin can't be one of this divergence, or of any. A server's places are its own tokens."""
    if not math.isfinite(margin.gap) or margin.gap < 0 or margin.rank < 1:
        return f"rank {margin.rank} with a gap of {margin.gap:.3g} nats is no margin"
    at = divergence.token_index if divergence is not None and margin.source != "server" else None
    if at is not None and at != margin.token_index:
        return f"it was measured at token {margin.token_index} and the answers part at token {at}"
    return ""


def describe(margin: Margin, reading: Reading) -> str:
    """Rank, gap, noise and source, for a message."""
    text = (
        f"rank {margin.rank} in plain's logits, {margin.gap:.3g} nats below the best, "
        f"limit {reading.limit:.3g} (width noise {reading.quantile} {reading.noise:.3g})"
    )
    if reading.later is not None and margin.rescored_max_gap is not None:
        text += f"; re-scored, token {reading.later} lies {margin.rescored_max_gap:.3g} nats below the best"
    if reading.amiss:
        text += f"; this is no evidence: {reading.amiss}"
    elif margin.source == "server":
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
