"""summary.md: the verdict for a pull request or a job's page, within what GitHub takes.

A comment holds 65,536 characters, a job summary 1 MiB: the default limit fits both. Words of models and of tasks'
authors are escaped or stand in code, so that they make no markup, mention nobody and link nowhere.
"""

from __future__ import annotations

import re

from reports import words
from reports.contrast import contrast, faults
from reports.telling import Telling, most_telling
from reports.view import View
from reports.visible import one_line, visible

LIMIT = 65_535
"""Characters of a GitHub comment, and far fewer bytes than a job summary may have."""
MOST_TELLING = 3
CONTEXT = 400
"""Characters of each side that are shown around a difference."""
_MARKS = {"serve": "✅", "serve_with_limits": "⚠️", "do_not_serve": "❌", "inconclusive": "❔"}


def render(view: View, limit: int = LIMIT) -> str:
    """The summary, at most `limit` characters and bytes: parts are left out from the end, and that is said.

    Raises ValueError where not even the verdict fits.
    """
    verdict = view.verdict
    head = [
        f"## {_MARKS[verdict.decision]} {words.DECISIONS[verdict.decision]}: {escaped(one_line(verdict.model))}\n",
        f"{escaped(one_line(words.said(verdict), 1000))}\n",
        f"**What to do.** {escaped(one_line(verdict.what_to_do, 1000))}\n",
    ]
    parts = [_table(view), *_reasons(view)]
    parts += [_difference(view, one) for one in most_telling(view, MOST_TELLING)]
    parts.append(_foot(view))
    return _within("\n".join(head), parts, limit)


def _within(text: str, parts: list[str], limit: int) -> str:
    note = "\n_Left out to stay within the limit: see report.html._\n"
    if _size(text) + _size(note) > limit:
        raise ValueError(
            f"expected a limit of at least {_size(text) + _size(note)} bytes for the summary, found {limit}"
        )
    left_out = False
    for part in parts:
        if _size(text) + _size(part) + 1 + _size(note) <= limit:
            text += "\n" + part
        else:
            left_out = True
    return text + note if left_out else text


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _table(view: View) -> str:
    lines = [
        "| task | arm | verdict | identical | passed, plain → arm | acceptance | speed | reasons |",
        "|---|---|---|--:|--:|--:|--:|---|",
    ]
    for found in view.verdict.tasks[:200]:
        summary = next((arm for arm in found.arms if arm.arm == found.arm), None)
        before, after = words.scores(found, view.base_of.get(found.arm, view.base))
        cells = [
            code(found.task, 60),
            code(found.arm, 60),
            f"{_MARKS[found.decision]} {words.DECISIONS[found.decision]}",
            f"{found.identical}/{found.prompts}",
            f"{before} → {after}",
            words.acceptance(summary),
            words.ratio(found.speed_ratio),
            ", ".join(code(reason, 60) for reason in found.reasons[:4]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if len(view.verdict.tasks) > 200:
        lines.append(f"\n_And {len(view.verdict.tasks) - 200} more rows in report.html._")
    return "\n".join(lines) + "\n"


def _reasons(view: View) -> list[str]:
    deciding = [r.finding for r in view.reasons if r.finding.severity in ("unreadable", "block", "limit")]
    if not deciding:
        return []
    lines = [f"- {code(found.code, 60)} {escaped(one_line(found.message, 500))}" for found in deciding[:10]]
    if len(deciding) > 10:
        lines.append(f"- and {len(deciding) - 10} more in report.html")
    return ["### Why\n\n" + "\n".join(lines) + "\n"]


def _difference(view: View, one: Telling) -> str:
    task, prompt, pair = one
    arms = ", ".join(pair.side.arms)
    said = f"<details><summary>{html(task.name)}, {html(prompt.id)}: {html(arms)} {_what(one)}</summary>\n\n"
    comparison = pair.comparison
    if comparison is not None and faults(comparison):
        said += f"{escaped('; '.join(faults(comparison)))}.\n\n"
    if pair.margin is not None and pair.margin.reproduced:
        noise = "".join(
            f", width noise {name} {nats:.3g}" for name, nats in pair.margin.noise.items() if name == "p99"
        )
        said += f"Rank {pair.margin.rank} by plain's logits, {pair.margin.gap:.3g} nats below the best{noise}.\n\n"
    base = prompt.base.grade if prompt.base is not None else None
    for line in contrast(task.cases, base, pair.side.grade)[:5]:
        outcome = words.OUTCOMES[line.other.outcome] if line.other is not None else words.DASH
        seen = f": {code(line.other.observed, 200)}" if line.other is not None and line.other.observed else ""
        moved = "" if line.moved == "both" else f" ({line.moved})"
        said += f"- {code(line.name, 60)}{moved} {outcome}{seen}\n"
    divergence = comparison.divergence if comparison is not None else None
    if divergence is not None and not view.redacted:
        for name, after in ((prompt.base_arm, divergence.base_after), (arms, divergence.other_after)):
            said += f"\n{code(name, 60)}\n{fence(divergence.before[-CONTEXT // 2 :] + after[:CONTEXT])}\n"
    return said + "\n</details>\n"


def _what(one: Telling) -> str:
    pair = one.pair
    if pair.side.failure is not None:
        return f"gave no answer ({pair.side.failure.kind})"
    divergence = pair.comparison.divergence if pair.comparison is not None else None
    at = (
        ""
        if divergence is None or divergence.token_index is None
        else f" from token {divergence.token_index}"
    )
    lost = f", {len(pair.lost)} cases lost" if pair.lost else ""
    return f"differs{at}{lost}"


def _foot(view: View) -> str:
    lines = [f"- {escaped(one_line(caveat, 300))}" for caveat in view.verdict.caveats[:8]]
    settings = ", ".join(dict.fromkeys(one_line(arm.device, 40) for arm in view.arms))
    identity = (
        f"mtp-gate {escaped(view.verdict.tool_version)}, {code(settings, 120)}, target "
        f"{code(view.verdict.target_digest[:12])}, policy {code(view.verdict.policy_digest[:12])}"
    )
    return "\n".join([*lines, "", f"<sub>{identity}</sub>"]) + "\n"


_PUNCTUATION = re.compile(r"([\\`*_\[\]<>|~&$]|^[-+=#](?=\s|[-=#]))")
_REACHES_OUT = re.compile(r"(?<![\w`])(@|#|GH-)(?=\w)|@(?=[\w-]+\.\w)|(?<=www)\.|(?<=://)|:(?=[\w+-]+:)")


def escaped(text: str) -> str:
    """One line of text that Markdown shows as it is. Mentions, issue numbers, addresses and emoji names are broken by
    a zero-width space, since GitHub looks for them after it has undone the escapes."""
    broken = _REACHES_OUT.sub(lambda match: match.group() + "\u200b", visible(text).replace("\n", " "))
    return _PUNCTUATION.sub(r"\\\1", broken)


def html(text: str) -> str:
    """Text inside an HTML element of the summary."""
    broken = _REACHES_OUT.sub(lambda match: match.group() + "\u200b", one_line(text, 60))
    return re.sub(r"[<>&\"'`*_\[\]|\\~:$]", lambda match: f"&#{ord(match.group())};", broken)


def code(text: str, limit: int = 200) -> str:
    """Text as a code span on one line, fit for a table's cell too; empty text is a dash."""
    line = one_line(text, limit).strip().replace("|", "\u2502")
    if not line:
        return words.DASH
    ticks = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fence(text: str) -> str:
    """Text as a fenced block, with a fence longer than any run of backticks in it."""
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{ticks}text\n{visible(text)}\n{ticks}"
