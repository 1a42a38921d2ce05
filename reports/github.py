"""Annotations for a GitHub job: workflow commands on standard output, escaped as the runner's documentation asks.

GitHub shows ten of each level per step, so the most telling ones come first and the tenth says how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from gate.types import Decision, Finding, Severity, Verdict
from reports import words
from reports.visible import one_line

MOST = 10
"""Annotations of one level that GitHub shows of a step."""
_LEVELS: dict[Severity, str] = {
    "block": "error",
    "unreadable": "error",
    "limit": "warning",
    "waived": "notice",
    "note": "notice",
}
_WHOLE: dict[Decision, str] = {
    "serve": "notice",
    "serve_with_limits": "warning",
    "do_not_serve": "error",
    "inconclusive": "error",
}


def commands(verdict: Verdict, *, most: int = MOST) -> list[str]:
    """One workflow command a line: the verdict, then its findings, at most `most` of each level."""
    lines = [
        _command(_WHOLE[verdict.decision], f"mtp-gate: {words.DECISIONS[verdict.decision]}", _whole(verdict))
    ]
    room = dict.fromkeys(("error", "warning", "notice"), most)
    room[_WHOLE[verdict.decision]] -= 1
    by_level: dict[str, list[Finding]] = {"error": [], "warning": [], "notice": []}
    for finding in verdict.findings:
        by_level[_LEVELS[finding.severity]].append(finding)
    for level, findings in by_level.items():
        lines += _bounded(level, findings, room[level])
    return lines


def _whole(verdict: Verdict) -> str:
    return f"{verdict.sentence} {verdict.what_to_do}"


def _bounded(level: str, findings: list[Finding], room: int) -> Iterator[str]:
    shown = findings if len(findings) <= room else findings[: room - 1]
    for finding in shown:
        place = " ".join(part for part in (finding.task, finding.arm, finding.prompt) if part is not None)
        yield _command(level, f"{finding.code} {place}".strip(), finding.message)
    if len(shown) < len(findings):
        yield _command(level, "mtp-gate", f"{len(findings) - len(shown)} more like these: see the report.")


def _command(level: str, title: str, message: str) -> str:
    head = one_line(title, 120).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    body = one_line(message, 1000).replace("%", "%25")
    return f"::{level} title={head}::{body}"
