"""sandbox-not-trusted: programs had to be run and the sandbox failed its self-test, so no score of theirs counts."""

from __future__ import annotations

from collections.abc import Iterator

from gate.evidence import Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if not evidence.executes:
        return
    sandbox = evidence.sandbox
    if sandbox is None:
        yield finding(evidence, RULE.code, "unreadable", "there is no record of a sandbox and its self-test")
    elif not sandbox.trusted or sandbox.failed_probes or sandbox.name == "none":
        probes = ", ".join(sandbox.failed_probes) or "its self-test"
        remedy = f"; {sandbox.remedy}" if sandbox.remedy else ""
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"the sandbox {sandbox.name} can't be trusted here ({probes} failed), so no program was judged{remedy}",
            sandbox=sandbox.name,
            failed_probes=list(sandbox.failed_probes),
        )


RULE = TaskRule(
    code="sandbox-not-trusted",
    severity="unreadable",
    basis="arm",
    summary="The sandbox failed its self-test or left no record of it.",
    advice="Do what the finding says to make the sandbox sound; programs are never run without it.",
    check=check,
)
