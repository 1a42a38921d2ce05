"""reply-delayed: a served reply comes so much later than plain's that no head explains it: late, slow, or with a pause.

A head that costs more than it gains is slower too (`slower-than-plain`, a note), and clocks over a network are noisy.
So every one of the arm's answers to a prompt has to be beyond every one of plain's, by a factor and by a time that a
client notices. A slow rest counts where most prompts have it, or where it is beyond any head's cost. A step of K + 1
tokens pauses for longer than plain's of one: pauses count where the reply isn't faster for it. A pause that isn't in
every reply to a prompt may be the network's, so it only leaves the task unread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median

from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy, Thresholds
from gate.rules.base import TaskRule, finding
from gate.types import Finding

LONG_S = 5.0
"""Seconds of a pause that is said even if it came once."""

ONCE = 10.0
"""How many times longer than plain's such a pause has to be, or a hundred tokens where most prompts aren't slow."""

LEAST = 2
"""Readings of each arm without which a time isn't compared."""

Times = tuple[list[float], list[float]]
"""Seconds of plain's replies to a prompt, and of the arm's"""


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    if evidence.spec.arm.endpoint is None or evidence.plain.arm.endpoint is None:
        return  # in-process and over HTTP: no clock measures both
    plain, arm = _by_prompt(evidence.plain.answers), _by_prompt(evidence.spec.answers)
    by_prompt = {prompt: _compared(plain[prompt], arm[prompt]) for prompt in evidence.prompts}
    alone = evidence.spec.arm.concurrency == 1
    most_slow = {what for what in (OF_A_BATCH, WHOLE) if _on_most(what, by_prompt.values(), policy)}
    seen = False
    for prompt, found in by_prompt.items():
        for what, times in found.items():
            if not _late(times, policy.thresholds) or not (alone or what == OF_A_BATCH):
                continue
            most, mine = max(times[0]), min(times[1])
            if what in (OF_A_BATCH, WHOLE) and what not in most_slow and mine < ONCE * most:
                continue
            if what == PAUSE and _faster(found.get(OF_A_BATCH)):
                continue
            seen = True
            yield finding(
                evidence,
                RULE.code,
                "block",
                f"{what} takes {mine:.2f} s or more in each of {len(times[1])} replies, plain's {most:.2f} s or less",
                prompt=prompt,
                what=what,
                seconds=mine,
                plain_seconds=most,
            )
            break
    if alone and not seen:
        yield from _once(evidence)


def _on_most(what: str, prompts: Iterable[Mapping[str, Times]], policy: Policy) -> bool:
    """Whether that time is late on more than half of the prompts of which it is known."""
    times = [found[what] for found in prompts if what in found]
    return 2 * sum(_late(each, policy.thresholds) for each in times) > len(times)


def _once(evidence: Evidence) -> Iterator[Finding]:
    """Long pauses in single replies of a task, where plain never makes one like them."""
    usual = max((p for a in evidence.plain.answers if (p := _pause(a)) is not None), default=None)
    if usual is None:
        return
    least = max(LONG_S, ONCE * usual)
    pauses = [(p, a.prompt) for a in evidence.spec.answers if (p := _pause(a)) is not None and p >= least]
    if not pauses:
        return
    longest, prompt = max(pauses)
    prompts = len({name for _, name in pauses})
    if len(pauses) == 1:
        said, again = f"one reply pauses for {longest:.1f} s", "it wasn't seen again, so "
    else:
        said = (
            f"{len(pauses)} replies to {prompts} prompt{'s' * (prompts > 1)} pause, for up to {longest:.1f} s"
        )
        again = ""
    yield finding(
        evidence,
        RULE.code,
        "unreadable",
        f"{said}, plain's longest pause is {usual:.2f} s; {again}the network can't be told from the server",
        prompt=prompt,
        what=PAUSE,
        seconds=longest,
        plain_seconds=usual,
        replies=len(pauses),
        prompts=prompts,
    )


def _by_prompt(answers: Iterable[AnswerFacts]) -> defaultdict[str, list[AnswerFacts]]:
    found: defaultdict[str, list[AnswerFacts]] = defaultdict(list)
    for answer in answers:
        if answer.failure is None:
            found[answer.prompt].append(answer)
    return found


def _compared(plain: Iterable[AnswerFacts], arm: Iterable[AnswerFacts]) -> dict[str, Times]:
    """By what is measured: the times of both, where there are enough of each."""
    times = {what: (_times(plain, seconds), _times(arm, seconds)) for what, seconds in MEASURES.items()}
    return {what: both for what, both in times.items() if min(map(len, both)) >= LEAST}


def _times(answers: Iterable[AnswerFacts], seconds: Callable[[AnswerFacts], float | None]) -> list[float]:
    return [found for a in answers if (found := seconds(a)) is not None]


def _late(times: Times, thresholds: Thresholds) -> bool:
    """Whether each of the arm's is far beyond each of plain's."""
    most, mine = max(times[0]), min(times[1])
    return mine > thresholds.delay_factor * most and mine - most > thresholds.delay_s


def _faster(times: Times | None) -> bool:
    return times is not None and median(times[1]) < median(times[0])


def _pause(answer: AnswerFacts) -> float | None:
    """Seconds of the longest pause; None where the reply came whole, whose one pause is all of its time."""
    return None if answer.ttft_s is None else answer.pause_s


def _hundred(answer: AnswerFacts) -> float | None:
    """Seconds of a hundred tokens at the answer's own rate."""
    return 100 / answer.rate if answer.rate else None


def _whole(answer: AnswerFacts) -> float | None:
    """Seconds of a hundred tokens of a reply that came whole, by all of its time."""
    if answer.ttft_s is not None or answer.pause_s is None or not answer.tokens:
        return None
    return 100 * answer.pause_s / answer.tokens


PAUSE = "the longest pause"
WHOLE = "a hundred tokens of a whole reply"
OF_A_BATCH = "a hundred tokens"
"""All that is measured under load: when each of several requests gets its turn is chance."""

MEASURES: dict[str, Callable[[AnswerFacts], float | None]] = {
    "the first token": lambda answer: answer.ttft_s,
    PAUSE: _pause,
    OF_A_BATCH: _hundred,
    WHOLE: _whole,
}

RULE = TaskRule(
    code="reply-delayed",
    severity="block",
    basis="pair",
    summary="Served replies come far later than plain's: their first token, the rest of them, or after a pause.",
    advice="Look at what stands before the server and at its load; a head alone doesn't slow a stream down so much.",
    check=check,
)
