"""reply-delayed: a served reply comes so much later than plain's that no head explains it: late, slow, or with a pause.

A head that costs more than it gains is slower too (`slower-than-plain`, a note), and clocks over a network are noisy.
So every one of the arm's answers to a prompt has to be beyond every one of plain's, by a factor and by a time that a
client notices. One pause that isn't seen again may be the network's, so it only leaves the task unread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding

LONG_S = 5.0
"""Seconds of a pause that is said even if it came once."""

ONCE = 10.0
"""How many times longer than plain's longest such a pause has to be."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if evidence.spec.arm.endpoint is None or evidence.plain.arm.endpoint is None:
        return  # in-process and over HTTP: no clock measures both
    plain, arm = _by_prompt(evidence.plain.answers), _by_prompt(evidence.spec.answers)
    alone = evidence.spec.arm.concurrency == 1
    seen = False
    for prompt in evidence.prompts:
        if len(plain[prompt]) < 2 or len(arm[prompt]) < 2:
            continue
        for what, seconds in MEASURES.items():
            usual, least = _times(plain[prompt], seconds), _times(arm[prompt], seconds)
            if not usual or not least or not (alone or what == OF_A_BATCH):
                continue
            most, mine = max(usual), min(least)
            thresholds = policy.thresholds
            if mine > thresholds.delay_factor * most and mine - most > thresholds.delay_s:
                seen = True
                yield finding(
                    evidence,
                    RULE.code,
                    "block",
                    f"{what} takes {mine:.2f} s or more in each of {len(least)} replies, plain's {most:.2f} s or less",
                    prompt=prompt,
                    what=what,
                    seconds=mine,
                    plain_seconds=most,
                )
                break
    if alone and not seen:
        yield from _once(evidence)


def _once(evidence: Evidence) -> Iterator[Finding]:
    """A long pause in one reply of a task, where plain never makes one like it."""
    usual = max((a.pause_s for a in evidence.plain.answers if a.pause_s is not None), default=None)
    pauses = [(a.pause_s, a.prompt) for a in evidence.spec.answers if a.pause_s is not None]
    if usual is None or not pauses:
        return
    longest, prompt = max(pauses)
    if longest >= max(LONG_S, ONCE * usual):
        yield finding(
            evidence,
            RULE.code,
            "unreadable",
            f"one reply pauses for {longest:.1f} s, plain's longest pause is {usual:.2f} s; it wasn't seen again, so "
            "the network can't be told from the server",
            prompt=prompt,
            what="the longest pause",
            seconds=longest,
            plain_seconds=usual,
        )


def _by_prompt(answers: Iterable[AnswerFacts]) -> defaultdict[str, list[AnswerFacts]]:
    found: defaultdict[str, list[AnswerFacts]] = defaultdict(list)
    for answer in answers:
        if answer.failure is None:
            found[answer.prompt].append(answer)
    return found


def _times(answers: Iterable[AnswerFacts], seconds: Callable[[AnswerFacts], float | None]) -> list[float]:
    return [found for a in answers if (found := seconds(a)) is not None]


def _hundred(answer: AnswerFacts) -> float | None:
    """Seconds of a hundred tokens at the answer's own rate."""
    return 100 / answer.rate if answer.rate else None


OF_A_BATCH = "a hundred tokens"
"""All that is measured under load: when each of several requests gets its turn is chance."""

MEASURES: dict[str, Callable[[AnswerFacts], float | None]] = {
    "the first token": lambda answer: answer.ttft_s,
    "the longest pause": lambda answer: answer.pause_s,
    OF_A_BATCH: _hundred,
}

RULE = TaskRule(
    code="reply-delayed",
    severity="block",
    basis="pair",
    summary="Served replies come far later than plain's: their first token, the rest of them, or after a pause.",
    advice="Look at what stands before the server and at its load; a head alone doesn't slow a stream down so much.",
    check=check,
)
