"""Caveats: what a verdict can't say, so that nobody takes it for more than it is."""

from __future__ import annotations

from collections.abc import Sequence

from evals.power import prompts_to_call, prompts_to_see
from gate.evidence import Evidence, RunEvidence
from gate.policy import Policy
from gate.speeds import speed_ratio
from gate.types import Finding
from tasks.depth import base_and_depth
from tasks.types import conversation_of


def caveats(run: RunEvidence, policy: Policy, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Sentences, the widest first."""
    items = run.evidence
    if not items:
        return ()
    out = []
    builtin = list(dict.fromkeys(base_and_depth(item.task)[0] for item in items if item.builtin))
    if builtin:
        out.append(
            f"The built-in tasks ({', '.join(builtin)}) stand for themselves, not for your work: "
            "give the gate your own with --tasks."
        )
    drafts = "head" if any(item.spec.arm.method == "mtp" for item in items) else "way of drafting"
    out += _served(items, run.asked_again) or [
        f"The verdict holds for this target and {drafts}, these K, this device and these precisions and runtime "
        "versions, for greedy decoding."
    ]
    loads = sorted({item.spec.arm.concurrency for item in items})
    if loads != [1]:
        out.append(
            f"It was judged with {' and '.join(map(str, loads))} requests in flight; acceptance of one among several "
            "is read off its steps where the runtime counts no drafts for it, and speed is that of the whole batch."
        )
    if drafts != "head":
        out.append(
            "There is no control arm for drafts that don't come from a head of the target, so what the verify width "
            "changes can't be told from what the drafts change."
        )
    elif not any(item.controls for item in items):
        out.append(
            "No control arm was decoded, so what the verify width changes can't be told from what the head changes."
        )
    if any(_kv_quantised(item, run) for item in items):
        out.append(
            "Under a quantised KV cache (u8, u4) rejected drafts leak into the numerics: the text depends on what the "
            "head drafts, not only on what is accepted, and a control arm is no exact yardstick of width noise."
        )
    if run.manifest.environment.get("tools_left_out"):
        out.append(
            "The model's chat template leaves the tools out: tasks with tools asked for calls of what the model was "
            "never shown."
        )
    if any(not c.same_context for item in items for c in item.spec.comparisons.values()):
        out.append(
            "Turns of conversations whose earlier answers differ from plain's had another context, and were judged by "
            "the scores alone."
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
    out += _power(run, policy)
    return tuple(out)


def _served(items: Sequence[Evidence], again: int) -> list[str]:
    """What an endpoint can't tell."""
    arms = {a.arm.name: a for item in items for a in (item.plain, item.spec) if a.arm.endpoint is not None}
    if not arms:
        return []
    out = [
        f"Answers came over HTTP ({', '.join(sorted(arms))}): the weights, the device and the runtime behind a URL "
        "can't be seen, so the verdict holds for what answered there during this run and for nothing that is put in "
        "its place; no attestation is written of it."
    ]
    if again:
        out.append(
            f"Servers left {again} questions unanswered (no connection, 429 or 5xx) before the run was gone on with; "
            "they were asked again later, so speeds there were not measured side by side."
        )
    answers = [
        a for item in items for arm in (item.plain, item.spec) if arm.arm.name in arms for a in arm.first()
    ]
    known = {a.ids_from for a in answers if a.failure is None}
    if None in known:
        out.append(
            "The servers told no token ids and no --tokenizer was given: answers were compared byte by byte, and short "
            "delivery can't be told."
        )
    elif "tokenizer" in known:
        out.append(
            "Token ids are those into which --tokenizer splits the served text again: a model may have said it with "
            "others."
        )
    if any(a.reported_tokens is None for a in answers if a.failure is None):
        out.append("A server sent no usage, so what it bills can't be held against what it delivers.")
    if not any("system_fingerprint" in a.server for a in answers):
        out.append(
            "The servers give no system_fingerprint, so a server replaced during the run can't be told by it."
        )
    return out


STRIKES = 0.1
"""Share of prompts struck by the loss for which the tool says how many prompts are needed."""

POWER = 0.9


def _power(run: RunEvidence, policy: Policy) -> list[str]:
    """Whether the prompts are enough to see a loss that strikes one prompt in ten, nine times in ten."""
    thresholds = policy.thresholds
    needed = {
        # one losing prompt is enough where nothing may be lost
        "no_worse": prompts_to_see(STRIKES, POWER),
        "non_inferior": prompts_to_call(STRIKES, thresholds.worse_confidence, POWER),
    }
    needed["identical"] = needed["no_worse"]
    out = []
    for requirement, least in needed.items():
        few = {
            i.task: len({conversation_of(prompt) for prompt in i.prompts})
            for i in run.evidence
            if policy.requirement(i.task) == requirement
        }
        short = [f"{task} {count}" for task, count in few.items() if count < least]
        if short:
            out.append(
                f"A loss that strikes one prompt in ten is seen nine times in ten from {least} prompts a task on "
                f"({requirement}); there were fewer ({', '.join(short)}): --variants makes more."
            )
    return out


def _kv_quantised(item: Evidence, run: RunEvidence) -> bool:
    in_force = run.manifest.environment.get("in_force", {})
    known = in_force if isinstance(in_force, dict) else {}
    precision = item.spec.arm.properties.get("KV_CACHE_PRECISION") or known.get("KV_CACHE_PRECISION", "")
    return str(precision).lower() in ("u8", "i8", "u4", "i4", "u3", "u2", "i2", "u6", "i6")
