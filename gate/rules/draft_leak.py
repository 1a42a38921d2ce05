"""draft-leak: two control heads accept nothing and yet give different texts, so rejected drafts change the numerics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding
from gate.yardstick import void


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    sound = [control for control in evidence.controls if void(control, policy) is None]
    for one, other in combinations(sound, 2):
        left, right = one.by_prompt(), other.by_prompt()
        both = [p for p in evidence.prompts if p in left and p in right]
        differ = [p for p in both if left[p].fingerprint != right[p].fingerprint]
        if differ:
            yield finding(
                evidence,
                RULE.code,
                "note",
                f"the control heads {one.arm.name} and {other.arm.name} accept nothing and yet differ on "
                f"{len(differ)} of {len(both)} prompts: rejected drafts leak into the numerics "
                "(a u8 or u4 KV cache does that), so width noise can't be told from the head's influence here",
                arm=other.arm.name,
                prompt=differ[0],
                differing=len(differ),
                prompts=len(both),
                kv_cache_precision=other.arm.properties.get("KV_CACHE_PRECISION"),
            )


RULE = TaskRule(
    code="draft-leak",
    severity="note",
    basis="arm",
    summary="Control heads with different seeds give different texts: what was drafted and thrown away still counts.",
    advice="Use a KV cache precision that does not leak (f32, f16, bf16) if the text must not depend on the head.",
    check=check,
)
