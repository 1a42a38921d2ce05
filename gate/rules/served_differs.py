"""served-differs: the directory's head in-process and the same head as it is served give other bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding

SAYS = {
    "template": "the prompt that the server makes of the question has other tokens",
    "stream assembly": "without a stream the served text is the directory's own",
    "stop handling": "one text goes on where the other stops",
    "detokenizer": "the texts differ in spaces or characters only",
    "decoding": "prompt, stream and stop agree, so the decoding itself differs (kernels, precisions, K or the head)",
}


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    twin = evidence.twin
    if twin is None:
        return
    counts = Counter(layer for layer in twin.layers.values() if layer is not None)
    for prompt, layer in twin.layers.items():
        if layer is None:
            continue
        yield finding(
            evidence,
            RULE.code,
            "block",
            f"differs from {twin.arm} from byte {twin.byte_offsets[prompt]} on; layer: {layer} ({SAYS[layer]}); "
            f"{len(twin.layers) - counts.total()} of {len(twin.layers)} prompts agree",
            prompt=prompt,
            layer=layer,
            byte_offset=twin.byte_offsets[prompt],
            twin=twin.arm,
        )


RULE = TaskRule(
    code="served-differs",
    severity="block",
    basis="arm",
    summary="The served head does not give the bytes that the same head gives in-process.",
    advice="Look at the layer named: chat template, tokenizer, stop strings, stream, or the device's numerics; a "
    "verdict on the directory does not hold for this server.",
    check=check,
)
