"""The threat: an outage read as a program's fault or, worse, as its success, because two things were true at once."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.contract import Status
from sandbox.ending import tell

PLAIN: dict[str, Any] = {
    "code": 0, "stopped": None, "out_of_memory": False, "closed": False, "trouble": "",
    "stdout": b"", "stderr": b"", "wall_s": 1.0, "cpu_s": 0.5,
}  # fmt: skip
LATE = (Status.TIMEOUT, "wall_s")


@pytest.mark.parametrize(
    ("seen", "status", "limit", "exit_code", "number"),
    [
        ({}, "exited", "", 0, None),
        ({"code": 3}, "exited", "", 3, None),
        ({"code": 128}, "exited", "", 128, None),
        ({"code": 137}, "signalled", "", None, 9),
        ({"code": 152}, "timeout", "cpu_s", None, None),
        ({"code": None}, "infra", "", None, None),
        ({"code": None, "closed": True}, "signalled", "", None, 9),
        ({"code": 137, "closed": True}, "signalled", "", None, 9),
        ({"code": 0, "out_of_memory": True}, "killed", "memory_bytes", None, None),
        ({"code": 137, "out_of_memory": True, "stopped": LATE}, "killed", "memory_bytes", None, None),
        ({"code": 0, "stopped": LATE}, "timeout", "wall_s", None, None),
        ({"code": None, "stopped": LATE, "closed": True}, "timeout", "wall_s", None, None),
        ({"stopped": (Status.OUTPUT_LIMIT, "output_bytes")}, "output_limit", "output_bytes", None, None),
        ({"code": 0, "trouble": "gone"}, "infra", "", None, None),
        ({"code": 0, "trouble": "gone", "out_of_memory": True, "stopped": LATE}, "infra", "", None, None),
    ],
)
def test_what_comes_first(
    seen: dict[str, Any], status: str, limit: str, exit_code: int | None, number: int | None
) -> None:
    outcome = tell(**{**PLAIN, **seen})
    assert (outcome.status, outcome.limit, outcome.exit_code, outcome.signal) == (
        status,
        limit,
        exit_code,
        number,
    )
    assert bool(outcome.detail) == (
        outcome.status is Status.INFRA or bool(seen.get("closed") and not seen.get("stopped"))
    )
