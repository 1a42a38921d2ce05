"""served-differs: the directory's head in-process and the same head as it is served give other bytes.

The layer is what `evals.endpoint.layers` tells from texts. Where that leaves only the decoding, the margin at the
divergence (in the logits of the directory's own target) and the acceptance of both tell what in it: another target,
another head, or kernels. A head that is another though the bytes are the same shows by its acceptance alone, and is a
note.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from gate.evidence import Evidence, Twin
from gate.margins import read_margin
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, percent
from gate.types import Finding

SAYS = {
    "template": "the prompt that the server makes of the question has other tokens",
    "stream assembly": "without a stream the served text is the directory's own",
    "stop handling": "one text goes on where the other stops",
    "detokenizer": "the texts differ in spaces or characters only",
    "target": "the served token is far from the best of the directory's own target: other weights or precisions are "
    "served, or wrong tokens let through",
    "head": "the target agrees within width noise and acceptance doesn't, so another head or another K drafts there",
    "kernels": "the target agrees within width noise: kernels, precisions or the width of a step",
    "decoding": "prompt, stream and stop agree, so the decoding itself differs (kernels, precisions, K or the head)",
}

SIGMAS = 3.3
"""Standard deviations from which two acceptances differ beyond chance (one in a thousand)."""

LEAST = 0.05
"""Difference of acceptance below which two heads count as one: counters are kept a little differently."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    twin = evidence.twin
    if twin is None:
        return
    counts = Counter(layer for layer in twin.layers.values() if layer is not None)
    for prompt, layer in twin.layers.items():
        if layer is None:
            continue
        named = _within(evidence, twin, prompt, policy) if layer == "decoding" else layer
        also = f"; acceptance {_both(twin)}" if named == "head" else ""
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"differs from {twin.arm} from byte {twin.byte_offsets[prompt]} on; layer: {named} ({SAYS[named]}{also}); "
            f"{len(twin.layers) - counts.total()} of {len(twin.layers)} prompts agree",
            prompt=prompt,
            layer=named,
            byte_offset=twin.byte_offsets[prompt],
            twin=twin.arm,
        )
    if twin.layers and not counts and _other_acceptance(twin, policy):
        yield finding(
            evidence,
            RULE.code,
            "note",
            f"gives the bytes of {twin.arm}, but acceptance is {_both(twin)}: another head or another K drafts there",
            layer="head",
            twin=twin.arm,
        )


def _within(evidence: Evidence, twin: Twin, prompt: str, policy: Policy) -> str:
    """What in the decoding differs, as far as the evidence tells."""
    comparison = evidence.spec.comparisons.get(prompt)
    divergence = comparison.divergence if comparison is not None else None
    reading = read_margin(evidence.margins.get(prompt), policy, divergence)
    if reading is not None and reading.nearness in ("wide", "open_wide"):
        return "target"
    if _other_acceptance(twin, policy):
        return "head"
    plains = comparison is not None and comparison.divergence is None and comparison.same_context
    near = reading is not None and reading.nearness == "near"
    return "kernels" if near or plains else "decoding"


def _other_acceptance(twin: Twin, policy: Policy) -> bool:
    if twin.accepted is None or twin.drafted is None or min(twin.drafted) < policy.thresholds.min_drafts:
        return False
    rates = [a / d for a, d in zip(twin.accepted, twin.drafted, strict=True)]
    pooled = sum(twin.accepted) / sum(twin.drafted)
    spread = math.sqrt(max(0.0, pooled * (1 - pooled)) * sum(1 / d for d in twin.drafted))
    return abs(rates[0] - rates[1]) > max(LEAST, SIGMAS * spread)


def _both(twin: Twin) -> str:
    assert twin.accepted is not None and twin.drafted is not None
    own, served = (percent(a, d) for a, d in zip(twin.accepted, twin.drafted, strict=True))
    return f"{served} where {twin.arm} has {own}"


RULE = TaskRule(
    code="served-differs",
    severity="block",
    basis="arm",
    summary="The served head does not give the bytes that the same head gives in-process.",
    advice="Look at the layer named: chat template, tokenizer, stop strings, stream, head, target, or the device's "
    "numerics; a verdict on the directory does not hold for this server.",
    check=check,
)
