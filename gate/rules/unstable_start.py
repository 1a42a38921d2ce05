"""unstable-start: built afresh, the same arm sometimes accepts nothing or far less, though its text is unchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gate.acceptance import acceptance, believed, dead_below, improbable
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding, percent
from gate.rules.not_exercised import LONG
from gate.types import Finding

LEAST = 0.5
"""Share of the acceptance that the same prompt had before below which a start is no chance variation of another."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    starts: defaultdict[int, list[AnswerFacts]] = defaultdict(list)
    for answer in evidence.spec.probes:
        anew = answer.probe == "start" or (answer.probe == "state" and answer.session > 0)
        if anew and answer.failure is None:
            starts[answer.session].append(answer)
    first = believed(evidence.spec.first())
    usual = acceptance(first).rate
    if usual is None or usual < dead_below(evidence.spec.arm.k, policy.thresholds):
        return
    drafting = {a.prompt for a in first if a.drafted}
    for number, (session, answers) in enumerate(sorted(starts.items()), start=1):
        total = acceptance(believed(answers))
        again = {a.prompt for a in answers}
        rate = acceptance(a for a in first if a.prompt in again).rate
        due = usual if rate is None else rate
        if total.accepted is None or total.drafted is None:
            continue
        if total.drafted == 0:
            tokens = sum(a.tokens for a in answers if a.prompt in drafting)
            dead, what = tokens >= LONG, "drafted nothing (0/0)"
        else:
            low = total.accepted < LEAST * due * total.drafted
            dead = low and improbable(total.accepted, total.drafted, due)
            what = f"has an acceptance of {percent(total.accepted, total.drafted)}"
        if dead:
            yield finding(
                evidence,
                RULE.code,
                "block",
                f"start {number} of {len(starts)} {what}, where {100 * due:.1f} % are usual",
                session=session,
                accepted=total.accepted,
                drafted=total.drafted,
                usual=due,
            )


RULE = TaskRule(
    code="unstable-start",
    severity="block",
    basis="arm",
    summary="A fresh start of the same arm accepts far fewer drafts of the same prompt, or makes none.",
    advice="Check acceptance after each start of the server, or try another runtime version.",
    check=check,
)
