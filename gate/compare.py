"""What moved between two runs: a new head, a new runtime, a new policy. `gate compare RUN_A RUN_B`.

Everything is paired (`gate.pairing`): what has no partner is listed as such and counts nowhere, so that a difference is
never one of two prompts, or of two tasks that share a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evals.records import RunReader
from evals.speed import Speed, paired_speed
from evals.types import Answer, Arm, Manifest, Outcome
from gate.pairing import CompareError, Facts, Place, facts, pair_arms, pair_cases, pair_places, pair_tasks
from gate.types import Decision

MAX_VERDICT_BYTES = 256 << 20


class VerdictMove(msgspec.Struct, frozen=True):
    """A verdict before and after; task and arm are None for the whole."""

    task: str | None
    arm: str | None
    before: Decision
    after: Decision
    reasons_before: tuple[str, ...]
    reasons_after: tuple[str, ...]

    @property
    def moved(self) -> bool:
        return self.before != self.after or self.reasons_before != self.reasons_after


class CaseMove(msgspec.Struct, frozen=True):
    """A case whose outcome is another one now."""

    task: str
    arm: str
    prompt: str
    case: str
    before: Outcome
    after: Outcome


class TaskMove(msgspec.Struct, frozen=True):
    """One arm on one task, over the prompts that both runs have (first repeat).

    same_text: answers with equal bytes. cases: judged in both; passed_before, passed_after of them. accepted and
    drafted are sums over the prompts where both runs know them; None where there is none.
    """

    task: str
    arm: str
    prompts: int
    same_text: int
    cases: int
    passed_before: int
    passed_after: int
    accepted_before: int | None
    drafted_before: int | None
    accepted_after: int | None
    drafted_after: int | None

    @property
    def acceptance_before(self) -> float | None:
        """Share of drafted tokens that were accepted; None where nothing was drafted or it isn't known."""
        return (
            self.accepted_before / self.drafted_before
            if self.accepted_before is not None and self.drafted_before
            else None
        )

    @property
    def acceptance_after(self) -> float | None:
        return (
            self.accepted_after / self.drafted_after
            if self.accepted_after is not None and self.drafted_after
            else None
        )


class Moves(msgspec.Struct, frozen=True):
    """All that can be said of two runs side by side.

    settings: what the runs were made with and differs, one sentence each. speeds: arm name → decode throughput of run
    B by that of run A, same arm, prompt by prompt (two runs aren't interleaved: the machine's state is in it).
    unpaired: what has no partner, and why, one sentence each.
    """

    settings: tuple[str, ...]
    verdicts: tuple[VerdictMove, ...]
    tasks: tuple[TaskMove, ...]
    cases: tuple[CaseMove, ...]
    speeds: dict[str, Speed]
    unpaired: tuple[str, ...]


class _TaskVerdict(msgspec.Struct, frozen=True):
    task: str
    arm: str
    decision: Decision
    reasons: tuple[str, ...]


class _Verdict(msgspec.Struct, frozen=True):
    decision: Decision
    reasons: tuple[str, ...]
    tasks: tuple[_TaskVerdict, ...]


def compare_runs(run_a: Path, run_b: Path) -> Moves:
    """Pair two run directories and say what moved from A to B.

    Raises CompareError where no arm, no task or no prompt can be paired, and evals.records.RecordError for a directory
    that holds no run. Memory doesn't grow with the length of answers.
    """
    a, b = RunReader(run_a), RunReader(run_b)
    unpaired: list[str] = []
    arms = pair_arms(a.manifest, b.manifest, unpaired)
    tasks = pair_tasks(a.manifest, b.manifest, unpaired)
    facts_a, facts_b = (facts(r.answers(), arms, tasks) for r in (a, b))
    places = pair_places(facts_a, facts_b, unpaired)
    if not places:
        raise CompareError(
            f"expected two runs with a prompt in common, found none in {run_a} and {run_b}: {'; '.join(unpaired)}"
        )
    cases = pair_cases(a.grades(), b.grades(), places, unpaired)
    speeds = {}
    for arm in arms:
        speed = paired_speed(_of(a.answers(), arm, places), _of(b.answers(), arm, places))
        if speed is not None:
            speeds[arm] = speed
    return Moves(
        settings=tuple(_settings(a.manifest, b.manifest, arms)),
        verdicts=tuple(_verdicts(run_a, run_b, arms, tasks, unpaired)),
        tasks=tuple(_task_moves(places, facts_a, facts_b, cases)),
        cases=tuple(
            CaseMove(*_task_first(place), case, before, after)
            for place in places
            for case, (before, after) in cases.get(place, {}).items()
            if before != after
        ),
        speeds=speeds,
        unpaired=tuple(unpaired),
    )


def _task_moves(
    places: Iterable[Place],
    a: Mapping[Place, Facts],
    b: Mapping[Place, Facts],
    cases: Mapping[Place, Mapping[str, tuple[Outcome, Outcome]]],
) -> Iterator[TaskMove]:
    groups: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place in places:
        groups[place[1], place[0]].append(place)
    for (task, arm), members in groups.items():
        outcomes = [pair for place in members for pair in cases.get(place, {}).values()]
        counted = [
            (one, two)
            for one, two in ((a[p], b[p]) for p in members)
            if None not in (one.accepted, one.drafted, two.accepted, two.drafted)
        ]
        sums = [
            sum(getattr(pair[side], name) for pair in counted) if counted else None
            for side in (0, 1)
            for name in ("accepted", "drafted")
        ]
        yield TaskMove(
            task,
            arm,
            len(members),
            sum(a[p].text == b[p].text for p in members),
            len(outcomes),
            sum(before == "pass" for before, _ in outcomes),
            sum(after == "pass" for _, after in outcomes),
            *sums,
        )


def _settings(a: Manifest, b: Manifest, arms: Mapping[str, tuple[Arm, Arm]]) -> Iterator[str]:
    """What the runs were made with and differs. What all arms share is said once."""
    for name in ("tool_version", "policy_digest"):
        if getattr(a, name) != getattr(b, name):
            yield f"{name}: {_cut(getattr(a, name))} then, {_cut(getattr(b, name))} now"
    yield from (
        f"{key}: {before} then, {after} now" for key, before, after in _changes(a.environment, b.environment)
    )
    said: dict[str, list[str]] = defaultdict(list)
    for name, (one, two) in arms.items():
        for key, before, after in _changes(msgspec.to_builtins(one), msgspec.to_builtins(two)):
            said[f"{key}: {before} then, {after} now"].append(name)
    for sentence, names in said.items():
        yield sentence if len(names) == len(arms) else f"{', '.join(names)}: {sentence}"


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Keys whose value is another one, keys of an inner dict with a dot."""
    one, two = _flat(before), _flat(after)
    return (
        (k, _cut(one.get(k)), _cut(two.get(k)))
        for k in sorted(one.keys() | two.keys())
        if one.get(k) != two.get(k)
    )


def _flat(fields: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            found |= {f"{key}.{k}": str(v) for k, v in value.items()}
        elif value is not None:
            found[key] = str(value)
    return found


def _verdicts(
    run_a: Path, run_b: Path, arms: Mapping[str, object], tasks: frozenset[str], unpaired: list[str]
) -> Iterator[VerdictMove]:
    a, b = (_verdict(run) for run in (run_a, run_b))
    if a is None or b is None:
        lacking = [f"run {name}" for name, v in (("A", a), ("B", b)) if v is None]
        unpaired.append(
            f"verdicts: {' and '.join(lacking)} has no verdict.json that can be read (gate grade makes one)"
        )
        return
    yield VerdictMove(None, None, a.decision, b.decision, a.reasons, b.reasons)
    theirs = {(t.task, t.arm): t for t in b.tasks}
    for one in a.tasks:
        two = theirs.get((one.task, one.arm))
        if two is not None and one.task in tasks and one.arm in arms:
            yield VerdictMove(one.task, one.arm, one.decision, two.decision, one.reasons, two.reasons)


def _verdict(run: Path) -> _Verdict | None:
    path = run / "verdict.json"
    try:
        with path.open("rb") as f:
            return msgspec.json.decode(f.read(MAX_VERDICT_BYTES), type=_Verdict)
    except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _of(answers: Iterable[Answer], arm: str, places: Mapping[Place, object]) -> Iterator[Answer]:
    return (a for a in answers if a.arm == arm and (a.arm, a.task, a.prompt) in places)


def _task_first(place: Place) -> tuple[str, str, str]:
    return place[1], place[0], place[2]


def _cut(value: str | None) -> str:
    """A digest cut to 12 digits."""
    return "none" if value is None else value[:12] + "…" if len(value) == 64 else value
