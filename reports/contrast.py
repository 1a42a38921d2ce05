"""Sets the cases of two answers beside each other: which were lost, gained, or failed by both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from evals.types import CaseGrade, Comparison, Grade
from reports.view import CaseRow

_ORDER = {"lost": 0, "gained": 1, "both": 2}


class CaseLine(msgspec.Struct, frozen=True):
    """One case that not every side passed. base, other: None where that side was not judged (or there is one side)."""

    name: str
    given: str
    moved: Literal["lost", "gained", "both"]
    base: CaseGrade | None
    other: CaseGrade | None

    @property
    def expected(self) -> str:
        return next((side.expected for side in (self.base, self.other) if side and side.expected), "")


def contrast(rows: Iterable[CaseRow], base: Grade | None, other: Grade | None) -> list[CaseLine]:
    """Cases that a side didn't pass: lost ones first, then gained ones, then those that both failed."""
    given = {row.name: row.given for row in rows}
    mine = {case.case: case for case in base.cases} if base else {}
    theirs = {case.case: case for case in other.cases} if other else {}
    lines = [
        CaseLine(
            name,
            given.get(name, ""),
            _moved(mine.get(name), theirs.get(name)),
            mine.get(name),
            theirs.get(name),
        )
        for name in dict.fromkeys([*mine, *theirs])
        if any(side is not None and side.outcome != "pass" for side in (mine.get(name), theirs.get(name)))
    ]
    return sorted(lines, key=lambda line: _ORDER[line.moved])


def _moved(base: CaseGrade | None, other: CaseGrade | None) -> Literal["lost", "gained", "both"]:
    if base is None or other is None or "infra" in (base.outcome, other.outcome):
        return "both"
    if base.outcome == "pass":
        return "lost"
    return "gained" if other.outcome == "pass" else "both"


def faults(found: Comparison) -> list[str]:
    """What a comparison says of an answer that no tolerance excuses, in words; empty where it says nothing."""
    said = []
    if found.tokens_after_stop:
        said.append(f"{found.tokens_after_stop} tokens after the stop")
    if found.over_budget:
        said.append(f"{found.over_budget} tokens over budget")
    if found.control_tokens:
        said.append(f"{len(found.control_tokens)} control tokens in the body")
    if found.stream_matches is False:
        said.append("what was streamed isn't what the tokens say")
    again = found.realignment
    if again is not None and (again.skipped or again.repeated):
        said.append(
            f"{len(again.skipped)} spans skipped, {len(again.repeated)} repeated, "
            f"{100 * again.realigned:.0f}% of the rest re-aligned"
        )
    return said
