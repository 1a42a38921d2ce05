"""The sentences of a verdict: one per task and arm, one for the whole, and one that says what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gate.acceptance import acceptance
from gate.cases import CasePairs, judged
from gate.evidence import Evidence, RunEvidence
from gate.rules.base import percent
from gate.rules.registry import ADVICE
from gate.types import Decision, Finding, TaskVerdict

SAYS: dict[Decision, str] = {
    "serve": "may be served",
    "serve_with_limits": "may be served within limits",
    "do_not_serve": "must not be served",
    "inconclusive": "can't be judged",
}


def task_sentence(
    item: Evidence,
    decision: Decision,
    counts: Mapping[str, int],
    first: Finding | None,
    pairs: CasePairs,
    void: Collection[str],
) -> str:
    """What was decided and on what. counts: deciding reason codes; first: the most telling finding."""
    place = f"{item.task}, {item.spec.arm.name}"
    if decision in ("do_not_serve", "inconclusive"):
        codes = ", ".join(f"{code} ({n})" if n > 1 else code for code, n in counts.items())
        if void:
            return f"{place} {SAYS[decision]}: the run is void ({', '.join(sorted(void))})."
        assert first is not None
        return f"{place} {SAYS[decision]}: {codes}. {first.message}."
    identical = sum(c.identical for c in item.spec.comparisons.values())
    parts = [
        f"{identical} of {len(item.prompts)} answers byte-identical to plain",
        f"{pairs.passed_arm} of {pairs.pairs} cases pass ({pairs.passed_plain} with plain{_control(item)})",
    ]
    total = acceptance(item.spec.first())
    if total.drafted and total.accepted is not None:
        parts.append(f"acceptance {percent(total.accepted, total.drafted)}")
    limits = f" {first.message}." if decision == "serve_with_limits" and first else ""
    return f"{place} {SAYS[decision]}: {', '.join(parts)}.{limits}"


def _control(item: Evidence) -> str:
    """The control arm's score, where it can be read on the same prompts."""
    if item.scored is None or item.scored.control is None:
        return ""
    control = next(c for c in item.controls if c.arm.name == item.scored.control)
    if not all(judged(control.grades.get(p), item.cases_of(p)) for p in item.prompts):
        return ""
    return f", {sum(control.grades[p].passed for p in item.prompts)} with {control.arm.name}"


def whole_sentence(decision: Decision, tasks: Sequence[TaskVerdict], reasons: Sequence[str]) -> str:
    """The whole verdict in one sentence, naming the tasks that decided it and those that were fine."""
    deciding = _places(t for t in tasks if t.decision == decision and t.requirement != "advisory")
    fine = _places(t for t in tasks if t.decision in ("serve", "serve_with_limits"))
    why = ", ".join(reasons[:4])
    if decision in ("serve", "serve_with_limits"):
        return f"Serve{_within(tasks)}: no worse than the policy allows on {fine}."
    rest = f"; {fine} would pass" if fine else ""
    where = f" on {deciding}" if deciding else ""
    if decision == "do_not_serve":
        return f"Do not serve: blocked{where} ({why}){rest}."
    return f"Inconclusive: can't be judged{where} ({why}){rest}."


def _within(tasks: Sequence[TaskVerdict]) -> str:
    """The limits of all tasks in words, the narrowest of each name: within the limits named (csv: depth 512)."""
    named: dict[str, tuple[int, str]] = {}
    for task in tasks:
        for name, value in task.limits.items():
            named[name] = min((value, task.task), named.get(name, (value, task.task)))
    said = ", ".join(f"{task}: {name} {value}" for name, (value, task) in named.items())
    return f" within the limits named ({said})" if said else ""


def what_to_do(run: RunEvidence, decision: Decision, reasons: Sequence[str], worth: bool | None) -> str:
    """The next step."""
    if decision in ("do_not_serve", "inconclusive"):
        return ADVICE[reasons[0]]
    ks = " or ".join(str(k) for k in dict.fromkeys(i.spec.arm.k for i in run.evidence if i.spec.arm.k))
    loads = list(dict.fromkeys(item.spec.arm.concurrency for item in run.evidence))
    load = "" if loads == [1] else f", {' or '.join(map(str, loads))} requests in flight"
    how = f"with K = {ks}{load} and the settings of this run" if ks else f"as it is served now{load}"
    text = f"Serve it {how}; for others the gate must be run again."
    if decision == "serve_with_limits":
        text += f" {ADVICE[reasons[0]]}"
    if worth is False:
        text += " It may be served, but it isn't worth it: plain is as fast or faster."
    return text


def _places(tasks: Iterable[TaskVerdict]) -> str:
    """Tasks by arm: csv, prose (mtp@1); csv (mtp@3)."""
    by_arm: dict[str, list[str]] = {}
    for task in tasks:
        by_arm.setdefault(task.arm, []).append(task.task)
    return "; ".join(f"{', '.join(names)} ({arm})" for arm, names in by_arm.items())
