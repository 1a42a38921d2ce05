"""Caveats: what a verdict can't say, so that nobody takes it for more than it is."""

from __future__ import annotations

from collections.abc import Sequence

from gate.evidence import Evidence, RunEvidence
from gate.speeds import speed_ratio
from gate.types import Finding


def caveats(run: RunEvidence, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Sentences, the widest first."""
    items = run.evidence
    if not items:
        return ()
    out = []
    builtin = list(dict.fromkeys(item.task for item in items if item.builtin))
    if builtin:
        out.append(
            f"The built-in tasks ({', '.join(builtin)}) stand for themselves, not for your work: "
            "give the gate your own with --tasks."
        )
    out.append(
        "The verdict holds for this target and head, these K, this device and these precisions and runtime versions, "
        "for greedy decoding."
    )
    if not any(item.controls for item in items):
        out.append(
            "No control arm was decoded, so what the verify width changes can't be told from what the head changes."
        )
    if any(_kv_u8(item, run) for item in items):
        out.append(
            "Under a u8 KV cache rejected drafts leak into the numerics, so the control arm is no exact yardstick of "
            "width noise here."
        )
    diverged = sum(1 for f in findings if f.code == "diverged")
    if diverged:
        out.append(
            "Divergences whose margin was not measured or not reproduced can't be told to be near-ties; "
            "they were judged by the scores alone."
        )
    if any(m.source == "stateful" for item in items for m in item.margins.values()):
        out.append("Margins were read from the stateful graph, whose kernels are not those that were served.")
    if any(item.spec.repeats_planned < 2 for item in items):
        out.append("The speculative arm was decoded once a prompt, so whether it repeats itself isn't known.")
    if any(speed_ratio(item) is None for item in items):
        out.append("Decode throughput was not measured in every task, so worth is not known there.")
    few = min(len(item.prompts) for item in items)
    out.append(
        f"From {few} prompts a task, a loss that strikes fewer than about one prompt in {max(1, few // 3)} "
        "may have gone unseen."
    )
    return tuple(out)


def _kv_u8(item: Evidence, run: RunEvidence) -> bool:
    in_force = run.manifest.environment.get("in_force", {})
    known = in_force if isinstance(in_force, dict) else {}
    precision = item.spec.arm.properties.get("KV_CACHE_PRECISION") or known.get("KV_CACHE_PRECISION", "")
    return str(precision).lower() in ("u8", "i8", "uint8", "int8")
