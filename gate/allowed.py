"""What a verdict allows to be served: with the head or without, its K, how many requests in flight, up to which depth.

Only an arm of which every required task may be served is ever allowed its head, and only under the loads that were
decoded: the most requests in flight up to which no decoded load fails. What isn't known is not allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from evals.bases import base_of
from evals.types import Arm, Manifest
from gate.depths import HOLDS, counted
from gate.policy import Policy
from gate.types import TaskVerdict, Verdict

KNOWN_LIMITS = frozenset({"depth"})
"""Limits of a verdict that a server's configuration is made to keep; an arm with any other is not allowed its head."""


class AllowedError(ValueError):
    """An arm that the run doesn't have: expected, found."""


class Allowed(msgspec.Struct, frozen=True):
    """head: whether to serve with it. why: one sentence. arm: whose settings are to be served (plain where it's off).

    in_force: OpenVINO properties as the device applied them. concurrency: most requests in flight, None where nothing
    bounds it (without the head). depth: most tokens of context, None where the verdict has no limit.
    """

    head: bool
    why: str
    arm: Arm
    in_force: dict[str, str]
    concurrency: int | None = None
    depth: int | None = None
    decoded_with: str = ""
    """The engine and its version that the verdict holds for."""


def allowed(verdict: Verdict, manifest: Manifest, policy: Policy, wanted: str | None = None) -> Allowed:
    """What may be served of a run. wanted: an arm by name; otherwise the fastest that may be served, if it is worth it.

    Raises AllowedError where the run has no arm of that name, or no plain arm.
    """
    judged = {t.arm for t in verdict.tasks}
    arms = {arm.name: arm for arm in manifest.arms}
    if wanted is not None and wanted not in judged:
        raise AllowedError(
            f"--arm {wanted[:80]!r}: expected an arm that the run has a verdict for: {', '.join(sorted(judged))}."
        )
    lacking = _run_lacks(verdict)
    by_arm = {name: _required(verdict, name) for name in arms if name in judged}
    fit = {name: tasks for name, tasks in by_arm.items() if not lacking and _may_be_served(tasks)}
    choices = [n for n in fit if wanted in (None, n) and _loads_hold(arms[n], arms, fit, judged)]
    if not choices:
        return _without(verdict, manifest, _why_not(verdict, lacking, wanted, by_arm))
    # of those that differ in load only, the highest load; of others the fastest
    best = max(choices, key=lambda n: (_speed(fit[n], by_arm, arms, n), arms[n].concurrency))
    ratio = _ratio(fit[best])
    if wanted is None and ratio is not None and ratio < policy.thresholds.min_speed_ratio:
        why = f"{best} may be served and isn't worth it: {ratio:.2f} times plain's rate (--arm {best} serves it)"
        return _without(verdict, manifest, why)
    depths = [t.limits["depth"] for t in fit[best] if "depth" in t.limits]
    tasks = ", ".join(t.task for t in fit[best])
    return Allowed(
        head=True,
        why=f"{best} may be served on {tasks}" + (" within limits" if depths else ""),
        arm=arms[best],
        in_force=_in_force(manifest, arms[best]),
        concurrency=arms[best].concurrency,
        depth=min(depths) if depths else None,
        decoded_with=_decoded_with(arms[best]),
    )


def _run_lacks(verdict: Verdict) -> str | None:
    """Why nothing of the run counts, or None."""
    codes = [f.code for f in verdict.findings if f.task is None and f.severity in ("block", "unreadable")]
    return ", ".join(dict.fromkeys(codes)) or None


def _required(verdict: Verdict, arm: str) -> list[TaskVerdict]:
    return [t for t in counted(verdict.tasks) if t.arm == arm and t.requirement != "advisory"]


def _may_be_served(tasks: Sequence[TaskVerdict]) -> bool:
    return bool(tasks) and all(
        t.decision in HOLDS
        and set(t.limits) <= KNOWN_LIMITS
        and (t.decision == "serve" or bool(t.limits))
        and all(isinstance(limit, int) and limit > 0 for limit in t.limits.values())
        for t in tasks
    )


def _same_but_load(one: Arm, other: Arm) -> bool:
    def bare(arm: Arm) -> Arm:
        return msgspec.structs.replace(arm, name="", concurrency=1, batch_seed=None)

    return bare(one) == bare(other)


def _loads_hold(arm: Arm, arms: dict[str, Arm], fit: dict[str, list[TaskVerdict]], judged: set[str]) -> bool:
    """Whether no smaller load that was decoded fails."""
    smaller = (n for n in judged if _same_but_load(arms[n], arm) and arms[n].concurrency < arm.concurrency)
    return all(n in fit for n in smaller)


def _speed(
    tasks: Sequence[TaskVerdict], by_arm: dict[str, list[TaskVerdict]], arms: dict[str, Arm], name: str
) -> float:
    """The arm's ratio to plain; loads of one arm share that of the smallest, so that the highest load is taken."""
    least = min((n for n in by_arm if _same_but_load(arms[n], arms[name])), key=lambda n: arms[n].concurrency)
    return _ratio(by_arm[least]) or 0.0


def _ratio(tasks: Sequence[TaskVerdict]) -> float | None:
    known = [t.speed_ratio for t in tasks if t.speed_ratio is not None]
    return median(known) if known else None


def _why_not(
    verdict: Verdict, lacking: str | None, wanted: str | None, by_arm: dict[str, list[TaskVerdict]]
) -> str:
    if lacking:
        return f"nothing of this run counts ({lacking})"
    names = [wanted] if wanted else list(by_arm)
    bad = [
        f"{t.task} {t.arm} {t.decision.replace('_', ' ')}"
        for name in names
        for t in by_arm[name]
        if not _may_be_served([t])
    ]
    if not any(by_arm[name] for name in names):
        return "no required task was judged"
    said = "; ".join(bad[:4]) or "a smaller load fails"
    return f"no arm may be served ({said})" if wanted is None else f"{wanted} may not be served ({said})"


def _without(verdict: Verdict, manifest: Manifest, why: str) -> Allowed:
    plain = next((base for arm in manifest.arms if (base := base_of(manifest.arms, arm))), None)
    if plain is None:
        raise AllowedError("expected a run with a plain arm, found none: decode it again with one.")
    return Allowed(
        head=False, why=why, arm=plain, in_force=_in_force(manifest, plain), decoded_with=_decoded_with(plain)
    )


def _in_force(manifest: Manifest, arm: Arm) -> dict[str, str]:
    known = manifest.environment.get("in_force", {})
    return {**(known if isinstance(known, dict) else {}), **arm.properties}


def _decoded_with(arm: Arm) -> str:
    version = arm.versions.get(arm.engine)
    return f"{arm.engine} {version}" if version else arm.engine
