"""Arms that are served: what is known of them is where they are asked and how."""

from __future__ import annotations

from typing import Literal

from evals.types import UNKNOWN, Arm, Endpoint

ENGINE = "endpoint"


def served_arm(endpoint: Endpoint, method: Literal["plain", "served"], k: int = 0) -> Arm:
    """An arm behind a URL: `plain`, or `served` (`served@K` where the user says which K it drafts with)."""
    return Arm(
        name=f"{method}@{k}" if k else method,
        method=method,
        k=k,
        engine=ENGINE,
        device=UNKNOWN,
        target_digest=UNKNOWN,
        head_digest=None,
        endpoint=endpoint,
    )
