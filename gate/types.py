"""The types of what is decided: Finding, TaskVerdict, Verdict. `gate.verdict` makes them, `reports` shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Decision = Literal["serve", "serve_with_limits", "do_not_serve", "inconclusive"]
Severity = Literal["note", "limit", "unreadable", "block", "waived"]
"""note: worth knowing, decides nothing. limit: holds only up to something (a depth). unreadable: nothing can be said
(inconclusive). block: must not be served. waived: would block, but a named waiver of the policy covers it."""

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that a rule saw. `code` is the rule's reason code; `message` one sentence with the evidence in it.

    evidence: machine-readable facts that the sentence rests on (index, tokens, rank, gap, noise, counts, …).
    """

    code: str
    severity: Severity
    message: str
    task: str | None = None
    arm: str | None = None
    prompt: str | None = None
    evidence: dict[str, Any] = {}


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cases passed of cases judged, over a task's prompts (first repeat of each)."""

    passed: int
    judged: int


class ArmSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one arm did on one task. tokens_per_s: median over its answers of decoded tokens per second after the
    first, of the whole batch where several requests are in flight; acceptance = accepted / drafted, None where nothing
    was drafted or it isn't known."""

    arm: str
    answers: int
    planned: int
    identical: int | None
    score: Score
    accepted: int | None
    drafted: int | None
    acceptance: float | None
    tokens_per_s: float | None
    ttft_s: float | None


class TaskVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verdict for one task and one speculative arm.

    requirement is the policy's (`identical`, `no_worse`, `non_inferior`, `advisory`). An advisory task never blocks the
    whole. lost, gained: (prompt, case) pairs that only plain passed, and that only the arm passed.
    """

    task: str
    arm: str
    requirement: str
    decision: Decision
    reasons: tuple[str, ...]
    """reason codes of the findings that decided, most telling first"""
    sentence: str
    prompts: int
    identical: int
    lost: tuple[tuple[str, str], ...]
    gained: tuple[tuple[str, str], ...]
    arms: tuple[ArmSummary, ...]
    speed_ratio: float | None = None
    """Median over prompts (or batches) of the arm's decode throughput by plain's, same prompt."""
    limits: dict[str, Any] = {}
    statistics: dict[str, Any] = {}


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole: what `verdict.json` holds. Its JSON schema is `gate/schema/verdict.schema.json`.

    worth_it is apart from the decision: True where the policy's speed threshold was met, None where it isn't known
    or is missed by no more than chance explains.
    """

    schema: Annotated[int, msgspec.Meta(ge=1)]
    tool_version: str
    created: str
    decision: Decision
    sentence: str
    what_to_do: str
    reasons: tuple[str, ...]
    worth_it: bool | None
    k: tuple[int, ...]
    model: str
    target_digest: str
    head_digests: dict[str, str]
    """arm name → digest of its head"""
    policy_digest: str
    manifest_identity: str
    tasks: tuple[TaskVerdict, ...]
    findings: tuple[Finding, ...]
    sandbox: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    caveats: tuple[str, ...] = ()
    """What this verdict cannot say (e.g. that built-in tasks stand for themselves)."""
