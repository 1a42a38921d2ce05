"""engine-crash: an engine died, hung or refused. Of the arm alone it is a fault; of plain nothing can be said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from evals.types import Failure, FailureKind
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, quote
from gate.types import Finding, Severity

VERBS: dict[FailureKind, str] = {
    "crash": "crashed",
    "hang": "hung",
    "error": "failed",
    "refused": "refused to run",
}
"""The kinds of failure that are an engine's; those of a reply over HTTP have rules of their own."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    plain = (*evidence.plain.answers, *evidence.plain.probes)
    plain_failed = {(a.prompt, a.probe) for a in plain if a.failure}
    for arm in (evidence.plain, evidence.spec):
        groups: defaultdict[tuple[str, str, int | None], list[AnswerFacts]] = defaultdict(list)
        for answer in (*arm.answers, *arm.probes):
            failure = answer.failure
            if (
                failure
                and failure.kind in VERBS
                and (
                    arm is evidence.plain
                    or plain_failed.isdisjoint((answer.prompt, p) for p in (None, answer.probe))
                )
            ):
                groups[failure.kind, failure.stage, failure.signal].append(answer)
        for answers in groups.values():
            first = answers[0]
            assert first.failure is not None
            severity: Severity = "block"
            if arm is evidence.plain or first.failure.kind == "refused":
                severity = "unreadable"
            count = len({a.prompt for a in answers})
            also = "" if arm is evidence.plain or severity != "block" else "; plain answers there"
            yield finding(
                evidence,
                RULE.code,
                severity,
                f"{_what(first.failure)} on {count} of {len(evidence.prompts)} prompts{also}",
                arm=arm.arm.name,
                prompt=first.prompt,
                kind=first.failure.kind,
                stage=first.failure.stage,
                signal=first.failure.signal,
                exit_code=first.failure.exit_code,
                prompts=count,
            )


def _what(failure: Failure) -> str:
    verb = VERBS[failure.kind]
    by = f" (signal {failure.signal})" if failure.signal is not None else ""
    when = "while being built" if failure.stage == "build" else "while decoding"
    return f"the engine {verb} {when}{by}, {quote(failure.message, 160)},"


RULE = TaskRule(
    code="engine-crash",
    severity="block",
    basis="arm",
    summary="The arm's engine crashed or hung where plain's did not (a fault), or plain's did (unreadable).",
    advice="Try another runtime version or other settings; the engine's last words are in the finding.",
    check=check,
)
