"""From findings to a verdict: per task and arm, then the whole.

What can't be read is inconclusive, never a pass; a certain fault blocks even where something else can't be read; and a
difference from plain counts for nothing where plain itself can't be read. Pure: the same records and policy give the
same verdict, but for the date it bears and the waivers that end on it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from gate import __version__
from gate.cases import pair_cases
from gate.caveats import caveats
from gate.depths import counted, depth_findings, with_limits
from gate.evidence import Evidence, RunEvidence
from gate.policy import Policy, Waiver
from gate.rules.base import Basis
from gate.rules.registry import ORDER, RUN_RULES, SEVERITY_OF, TASK_RULES
from gate.scores import with_scores
from gate.sentences import task_sentence, what_to_do, whole_sentence
from gate.speeds import samples, speed_facts, speed_ratio, surely_below
from gate.summary import summarise
from gate.types import Decision, Finding, Severity, TaskVerdict, Verdict
from gate.waivers import apply_waivers, waiver_findings
from tasks.depth import base_and_depth

SCHEMA = 1
MAX_LISTED = 20
"""Findings of one code, task and arm that a verdict lists; the rest are counted."""

UNDERMINES: dict[str, frozenset[Basis]] = {
    "plain-unrepeatable": frozenset({"pair", "cases"}),
    "plain-not-repeated": frozenset({"pair", "cases"}),
    "degenerate-plain": frozenset({"pair", "cases"}),
    "not-exercised": frozenset({"pair", "cases"}),
    "plain-drafts": frozenset({"pair", "cases"}),
    "sandbox-not-trusted": frozenset({"cases"}),
    "harness-unrepeatable": frozenset({"cases"}),
    "model-changed": frozenset({"arm", "pair", "cases"}),
}
"""Where a finding of this code can't be read, blocking findings that rest on these don't count."""

BASIS_OF: dict[str, Basis] = {rule.code: rule.basis for rule in TASK_RULES}
RANK: dict[Decision, int] = {"serve": 0, "serve_with_limits": 1, "inconclusive": 2, "do_not_serve": 3}


def decide(run: RunEvidence, policy: Policy, *, now: dt.datetime | None = None) -> Verdict:
    """Judge a run by a policy. now: when it is judged, for the verdict's date and the waivers' last days (UTC)."""
    run = with_scores(run, policy)
    now = (now or dt.datetime.now(dt.UTC)).astimezone(dt.UTC)
    of_run = [found for rule in RUN_RULES for found in _by_policy(rule.check(run, policy), policy)]
    void = frozenset(f.code for f in of_run if f.severity == "unreadable" and f.code in UNDERMINES)
    tasks: list[TaskVerdict] = []
    listed: list[Finding] = []
    used: set[Waiver] = set()
    for item in run.evidence:
        found = [f for f in of_run if f.task == item.task and f.arm == item.spec.arm.name]
        for rule in TASK_RULES:
            found += _by_policy(rule.check(item, policy), policy)
        found, covered = apply_waivers(_undermined(found, void), policy, now.date())
        found.sort(key=lambda f: ORDER.index(f.code))
        used |= covered
        tasks.append(_task_verdict(item, policy, found, void))
        listed += _bounded(found)
    deep = _by_policy(depth_findings(tasks, run, policy), policy)
    alone = counted(tasks)
    tasks = [with_limits(v, deep) if v in alone else _of_its_depth(v) for v in tasks]
    listed += deep
    general = [f for f in of_run if f.task is None]
    readable = _whole(counted(tasks), general) != "inconclusive"
    general += waiver_findings(policy, used, run.manifest.tasks, now.date(), readable=readable)
    whole = counted(tasks)
    decision = _whole(whole, general)
    decided = [c for t in whole if t.requirement != "advisory" and t.decision == decision for c in t.reasons]
    reasons = _in_order([*_deciding(general, decision), *decided])
    worth = _worth_it(run, whole, policy)
    return Verdict(
        schema=SCHEMA,
        tool_version=__version__,
        created=now.isoformat(timespec="seconds"),
        decision=decision,
        sentence=whole_sentence(decision, whole, reasons),
        what_to_do=what_to_do(run, decision, reasons, worth),
        reasons=reasons,
        worth_it=worth,
        k=tuple(dict.fromkeys(item.spec.arm.k for item in run.evidence if item.spec.arm.k)),
        model=run.manifest.model,
        target_digest=next(arm.target_digest for arm in run.manifest.arms if arm.method == "plain"),
        head_digests={
            arm.name: arm.head_digest
            for arm in run.manifest.arms
            if arm.head_digest is not None and arm.method != "control"
        },
        policy_digest=policy.digest(),
        manifest_identity=run.manifest.identity(),
        tasks=tuple(tasks),
        findings=_once([*general, *listed]),
        sandbox=msgspec.to_builtins(run.sandbox) if run.sandbox else {},
        environment=run.manifest.environment,
        caveats=caveats(run, policy, listed),
    )


def exit_code(decision: Decision, *, allow_limits: bool = False) -> int:
    """0 serve (serve_with_limits too where limits are allowed), 1 do not serve, 3 inconclusive."""
    if decision == "inconclusive":
        return 3
    if decision == "serve" or (decision == "serve_with_limits" and allow_limits):
        return 0
    return 1


def encode_verdict(verdict: Verdict) -> bytes:
    """verdict.json: indented, keys in the order of the type, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(verdict), indent=2) + b"\n"


def _by_policy(findings: Iterable[Finding], policy: Policy) -> list[Finding]:
    """Give findings the severity that the policy names, where they have their rule's own one."""
    out = []
    for found in findings:
        named = policy.severities.get(found.code)
        if named is not None and found.severity == SEVERITY_OF[found.code]:
            found = msgspec.structs.replace(found, severity=named)
        out.append(found)
    return out


def _undermined(findings: Sequence[Finding], void: frozenset[str]) -> list[Finding]:
    """Make notes of blocking findings that rest on what can't be read."""
    causes = void | {f.code for f in findings if f.severity == "unreadable" and f.code in UNDERMINES}
    out = []
    for found in findings:
        by = [c for c in sorted(causes) if BASIS_OF.get(found.code) in UNDERMINES[c]]
        if found.severity == "block" and by:
            found = msgspec.structs.replace(
                found,
                severity="note",
                message=f"{found.message} (does not count: {by[0]})",
                evidence={**found.evidence, "does_not_count": by},
            )
        out.append(found)
    return out


DECIDES: dict[Decision, Severity] = {
    "do_not_serve": "block",
    "inconclusive": "unreadable",
    "serve_with_limits": "limit",
}


def _deciding(findings: Iterable[Finding], decision: Decision) -> list[str]:
    """Codes of the findings that a decision rests on."""
    return [f.code for f in findings if f.severity == DECIDES.get(decision)]


def _in_order(codes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(codes), key=ORDER.index))


def _task_verdict(
    item: Evidence, policy: Policy, findings: Sequence[Finding], void: frozenset[str]
) -> TaskVerdict:
    severities = {f.severity for f in findings}
    decision: Decision = "serve"
    if void:
        decision = "inconclusive"
    elif "block" in severities:
        decision = "do_not_serve"
    elif "unreadable" in severities:
        decision = "inconclusive"
    elif "limit" in severities:
        decision = "serve_with_limits"
    deciding = _deciding(findings, decision)
    pairs = pair_cases(item)
    limits: dict[str, int] = {}
    for found in findings:
        for name, value in found.evidence.get("limit", {}).items() if found.severity == "limit" else ():
            limits[name] = min(value, limits.get(name, value))
    counts = Counter(deciding)
    first = next((f for f in findings if f.severity == DECIDES.get(decision)), None)
    return TaskVerdict(
        task=item.task,
        arm=item.spec.arm.name,
        requirement=policy.requirement(item.task),
        decision=decision,
        reasons=_in_order([*void, *deciding]),
        sentence=task_sentence(item, decision, counts, first, pairs, void),
        prompts=len(item.prompts),
        identical=sum(c.identical for c in item.spec.comparisons.values()),
        lost=tuple((c.prompt, c.case) for c in pairs.lost),
        gained=tuple((c.prompt, c.case) for c in pairs.gained),
        arms=summarise(item),
        speed_ratio=speed_ratio(item),
        limits=limits,
        statistics=_statistics(item, policy),
    )


def _of_its_depth(verdict: TaskVerdict) -> TaskVerdict:
    """A task at a depth is advisory by itself: what it means for the whole stands as a limit at the task."""
    return msgspec.structs.replace(verdict, requirement="advisory")


def _statistics(item: Evidence, policy: Policy) -> dict[str, Any]:
    """The paired score against plain and control, what it allows to say, and the speed with its interval."""
    out: dict[str, Any] = {}
    if item.scored is not None:
        out = {key: value for key, value in msgspec.to_builtins(item.scored).items() if value is not None}
    speed = speed_facts(item, policy.thresholds.confidence)
    return {**out, "speed": speed} if speed else out


def _whole(tasks: Sequence[TaskVerdict], general: Sequence[Finding]) -> Decision:
    """The worst of what is required; a void run is inconclusive whatever else was seen. Where nothing is required,
    `nothing-judged` is among the general findings."""
    if any(f.severity == "unreadable" and f.code in UNDERMINES for f in general):
        return "inconclusive"
    severities = {f.severity for f in general}
    decisions: list[Decision] = [t.decision for t in tasks if t.requirement != "advisory"]
    if "block" in severities:
        decisions.append("do_not_serve")
    if "unreadable" in severities:
        decisions.append("inconclusive")
    return max(decisions, key=RANK.__getitem__)


def _worth_it(run: RunEvidence, whole: Sequence[TaskVerdict], policy: Policy) -> bool | None:
    """True where every arm's median speed over all its prompts meets the policy's ratio; None where one isn't known, or
    lies below it by no more than chance explains.

    Prompts deeper than their task may be served don't count.
    """
    most = {(t.task, t.arm): t.limits["depth"] for t in whole if "depth" in t.limits}
    worth: list[bool | None] = []
    for name in dict.fromkeys(item.spec.arm.name for item in run.evidence):
        found: dict[str, float] = {}
        for item in run.evidence:
            base, depth = base_and_depth(item.task)
            if item.spec.arm.name == name and (depth or 0) <= most.get((base, name), math.inf):
                found |= samples(item)
        if not found:
            return None
        least, all_ratios = policy.thresholds.min_speed_ratio, list(found.values())
        enough = median(all_ratios) >= least
        too_slow = surely_below(all_ratios, least, policy.thresholds.confidence)
        worth.append(True if enough else False if too_slow else None)
    if False in worth:
        return False
    return None if None in worth or not worth else True


def _bounded(findings: Sequence[Finding]) -> list[Finding]:
    """At most MAX_LISTED findings of one code and severity; the rest are counted in one more."""
    seen: Counter[tuple[str, str | None, Severity]] = Counter()
    out: list[Finding] = []
    for found in findings:
        kind = (found.code, found.arm, found.severity)
        seen[kind] += 1
        if seen[kind] <= MAX_LISTED:
            out.append(found)
    for (code, arm, severity), count in seen.items():
        if count > MAX_LISTED:
            task = findings[0].task
            more = count - MAX_LISTED
            message = f"{task}, {arm}: {more} more like these"
            out.append(Finding(code, severity, message, task=task, arm=arm, evidence={"more": more}))
    return out


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once: plain's own are found again beside every speculative arm."""
    return tuple({msgspec.json.encode(f): f for f in findings}.values())
