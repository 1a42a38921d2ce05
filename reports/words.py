"""How numbers and decisions are said, the same in every rendering. What wasn't measured is a dash, never a zero."""

from __future__ import annotations

from gate.types import ArmSummary, Decision, Score, TaskVerdict, Verdict

DASH = "\u2014"

DECISIONS: dict[Decision, str] = {
    "serve": "Serve",
    "serve_with_limits": "Serve, within limits",
    "do_not_serve": "Do not serve",
    "inconclusive": "Inconclusive",
}
OUTCOMES = {
    "pass": "passed",
    "fail": "failed",
    "crash": "crashed",
    "timeout": "ran out of time",
    "killed": "was killed",
    "output_limit": "wrote too much",
    "no_program": "no program",
    "truncated": "cut off",
    "infra": "not judged",
}
SEVERITIES = {
    "unreadable": "can't be read",
    "block": "blocks",
    "limit": "limits",
    "waived": "waived",
    "note": "note",
}


def said(verdict: Verdict) -> str:
    """The verdict's sentence without the decision at its front, which stands before it in larger letters."""
    head, colon, rest = verdict.sentence.partition(": ")
    if colon and rest and head.split()[0] == DECISIONS[verdict.decision].split(",")[0].split()[0]:
        return rest[0].upper() + rest[1:]
    return verdict.sentence


def count(number: int | None) -> str:
    return DASH if number is None else f"{number:,}"


def share(value: float | None) -> str:
    """A share as a percentage; one that is nearly but not quite all or nothing never reads so."""
    if value is None:
        return DASH
    if 0 < value < 0.0005:
        return "under 0.1%"
    if 0.9995 <= value < 1:
        return "over 99.9%"
    return f"{100 * value:.1f}%"


def rate(tokens_per_s: float | None) -> str:
    return DASH if tokens_per_s is None else f"{tokens_per_s:,.{1 if tokens_per_s < 100 else 0}f}"


def ratio(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}\u00d7"


def seconds(value: float | None) -> str:
    if value is None:
        return DASH
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def score(found: Score | None) -> str:
    return DASH if found is None or not found.judged else f"{found.passed}/{found.judged}"


def scores(verdict: TaskVerdict, base: str) -> tuple[str, str]:
    """The base's score and the arm's."""
    by_arm = {summary.arm: summary for summary in verdict.arms}
    plain, arm = by_arm.get(base), by_arm.get(verdict.arm)
    return score(plain.score if plain else None), score(arm.score if arm else None)


def acceptance(summary: ArmSummary | None) -> str:
    """Acceptance as it can be said: 0 of 0 drafted tokens is not 0 percent."""
    if summary is None:
        return DASH
    if summary.drafted == 0:
        return "none drafted"
    return share(summary.acceptance)
