"""server-changed: what answers under one URL is no longer what answered before, so nobody knows what was judged."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, quote
from gate.types import Finding

SAID = {"system_fingerprint": "fingerprint", "model": "model"}


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for arm in (evidence.plain, evidence.spec):
        for key, word in SAID.items():
            said = list(dict.fromkeys(a.server[key] for a in (*arm.answers, *arm.probes) if key in a.server))
            if len(said) > 1:
                yield finding(
                    evidence,
                    RULE.code,
                    "unreadable",
                    f"the server's {word} changed during the run: {quote(said[0])}, then {quote(said[1])}",
                    arm=arm.arm.name,
                    said=said[:5],
                )


RULE = TaskRule(
    code="server-changed",
    severity="unreadable",
    basis="arm",
    summary="The server's fingerprint or model changed during the run.",
    advice="Leave the server alone while the gate runs (no reload, no balancer over unlike ones), and run it again.",
    check=check,
)
