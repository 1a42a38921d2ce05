"""Waivers: named findings that shall not block, each with a reason and a last day.

One that nothing used, or whose day has passed, fails the run, so that a waiver can't outlive its reason unseen.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence

import msgspec

from gate.policy import Policy, Waiver
from gate.types import Finding


def apply_waivers(
    findings: Sequence[Finding], policy: Policy, today: dt.date
) -> tuple[list[Finding], frozenset[Waiver]]:
    """Turn blocking findings that a waiver covers into waived ones; also the waivers that covered something."""
    out: list[Finding] = []
    used: set[Waiver] = set()
    for found in findings:
        covering = [w for w in policy.waivers if _covers(w, found) and today <= w.expires]
        if found.severity == "block" and covering:
            used.update(covering)
            waiver = covering[0]
            found = msgspec.structs.replace(
                found,
                severity="waived",
                evidence={
                    **found.evidence,
                    "waived_because": waiver.reason,
                    "waived_until": waiver.expires.isoformat(),
                },
            )
        out.append(found)
    return out, frozenset(used)


def waiver_findings(
    policy: Policy,
    used: Collection[Waiver],
    tasks: Collection[str],
    today: dt.date,
    *,
    readable: bool,
) -> list[Finding]:
    """What the waivers themselves give rise to.

    tasks: those of this run; a waiver for another could not be used, which is a note. readable: False where the run is
    inconclusive, so that an unused waiver may only be waiting for evidence: a note too.
    """
    out: list[Finding] = []
    for waiver in policy.waivers:
        name = f"the waiver of {waiver.code} for {waiver.task}" + (f", {waiver.arm}" if waiver.arm else "")
        facts = {"waiver": msgspec.to_builtins(waiver)}
        if waiver.expires < today:
            message = f"{name} ended on {waiver.expires.isoformat()} (reason given: {waiver.reason})"
            out.append(
                Finding("waiver-expired", "block", message, task=waiver.task, arm=waiver.arm, evidence=facts)
            )
        elif waiver not in used:
            if waiver.task not in tasks:
                severity, why = "note", "was not looked at: the task isn't part of this run"
            elif not readable:
                severity, why = "note", "was not used, but the run can't be read"
            else:
                severity, why = "block", "was not used: nothing that it covers was found"
            out.append(
                Finding(
                    "waiver-unused",
                    "block" if severity == "block" else "note",
                    f"{name} {why}",
                    task=waiver.task,
                    arm=waiver.arm,
                    evidence=facts,
                )
            )
    return out


def _covers(waiver: Waiver, found: Finding) -> bool:
    return (
        waiver.code == found.code
        and waiver.task == found.task
        and (waiver.arm is None or waiver.arm == found.arm)
    )
