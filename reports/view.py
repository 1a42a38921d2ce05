"""What a report shows, as one frozen value: `reports.build` makes it, every renderer reads it and nothing else.

Answers that are equal are one `Side` that lists who gave it; a `Pair` is a side that differs from the base's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from evals.types import Arm, Comparison, Failure, Finish, Grade, Margin, Outcome, RunEnd
from gate.types import ArmSummary, Finding, TaskVerdict, Verdict
from reports.excerpts import Excerpt


class Side(msgspec.Struct, frozen=True):
    """One distinct answer to a prompt. who: labels of all answers that were exactly this one, e.g. "plain, again".

    accepted, drafted, tokens_per_s: of the first of them. arms: the arms among `who`.
    """

    who: tuple[str, ...]
    arms: tuple[str, ...]
    excerpt: Excerpt
    tokens: int
    finish: Finish
    accepted: int | None
    drafted: int | None
    tokens_per_s: float | None
    failure: Failure | None
    grade: Grade | None


class Pair(msgspec.Struct, frozen=True):
    """A side that isn't the base's, beside it. lost, gained: cases that only the base, only this side passed."""

    anchor: str
    side: Side
    comparison: Comparison | None
    margin: Margin | None
    lost: tuple[str, ...]
    gained: tuple[str, ...]


class PromptView(msgspec.Struct, frozen=True):
    """All that was answered to one wording by a base arm and those compared with it. base is None where the base arm
    has no answer. image: a data: URI of the picture that it showed, made small; None where none is to be shown."""

    id: str
    anchor: str
    text: str
    base_arm: str
    base: Side | None
    pairs: tuple[Pair, ...]
    image: str | None = None


class CaseCell(msgspec.Struct, frozen=True):
    """One case over a task's prompts for one arm. outcomes: prompt id → outcome, in prompt order.

    lost, gained: prompts where only the base, only this arm passed (0 for the base itself).
    """

    arm: str
    outcomes: dict[str, Outcome]
    lost: int
    gained: int

    @property
    def passed(self) -> int:
        return sum(outcome == "pass" for outcome in self.outcomes.values())


class CaseRow(msgspec.Struct, frozen=True):
    name: str
    why: str
    given: str
    """What the case feeds the program, as a short text."""
    cells: tuple[CaseCell, ...]


class Spread(msgspec.Struct, frozen=True):
    """Decode throughput of one arm on one task, tokens per second after the first step, over its answers; or over its
    batches, each as a whole, where it has several requests in flight.

    low, high: first and third quartile, None below four answers.
    """

    arm: str
    answers: int
    low: float | None
    median: float
    high: float | None


class TaskView(msgspec.Struct, frozen=True):
    """One task: its verdicts (one per speculative arm), its cases, its prompts."""

    name: str
    anchor: str
    title: str
    summary: str
    kind: str
    judge: str
    builtin: bool
    verdicts: tuple[TaskVerdict, ...]
    arms: tuple[ArmSummary, ...]
    speeds: tuple[Spread, ...]
    cases: tuple[CaseRow, ...]
    prompts: tuple[PromptView, ...]

    def verdict(self, arm: str) -> TaskVerdict | None:
        """The verdict on one arm, None where none was reached."""
        return next((verdict for verdict in self.verdicts if verdict.arm == arm), None)

    def summary_of(self, arm: str) -> ArmSummary | None:
        return next((summary for summary in self.arms if summary.arm == arm), None)


class Reason(msgspec.Struct, frozen=True):
    """A finding and where in the page its evidence is (None: nowhere)."""

    finding: Finding
    anchor: str | None


class View(msgspec.Struct, frozen=True):
    """A whole run as it is shown. base: the first base arm; base_of: arm → the arm that it is compared with.

    Texts of the machine are scrubbed of home paths and keys; a model's are not changed, only cut. In a redacted view no
    prompt, answer, token or observed value is left.
    """

    verdict: Verdict
    base: str
    base_of: Mapping[str, str]
    arms: tuple[Arm, ...]
    tasks: tuple[TaskView, ...]
    reasons: tuple[Reason, ...]
    margins: tuple[Margin, ...]
    answers: int
    planned: int
    environment: Mapping[str, Any]
    sandbox: Mapping[str, Any]
    policy_text: str | None
    end: RunEnd | None
    redacted: bool

    @property
    def speculative(self) -> tuple[str, ...]:
        """Arms that have a verdict, in the manifest's order."""
        judged = {task.arm for task in self.verdict.tasks}
        return tuple(arm.name for arm in self.arms if arm.name in judged)
