"""What a head's model card needs: acceptance by kind of text, decode throughput, scores and what differed, honestly.

The metadata is in the model-index form of the Hugging Face hub. What wasn't measured is left out of it, never zero.
"""

from __future__ import annotations

from collections import defaultdict

from reports import words
from reports.markdown import code, escaped
from reports.telling import most_telling
from reports.view import View
from reports.visible import one_line


def render(view: View) -> str:
    """The section of the card, in Markdown."""
    verdict = view.verdict
    settings = []
    for arm in view.arms:
        named = (*arm.properties.items(), *arm.scheduler.items())
        given = code(", ".join(f"{name}={value}" for name, value in named)) if named else "defaults"
        settings.append(f"- {code(arm.name)}: {code(arm.engine)} on {code(arm.device)}, {given}")
    heads = ", ".join(code(digest) for digest in verdict.head_digests.values()) or words.DASH
    parts = [
        f"## Speculative decoding with this head\n\n**{words.DECISIONS[verdict.decision]}.** "
        f"{escaped(one_line(words.said(verdict), 1000))}",
        "### Acceptance by kind of text\n\n" + _acceptance(view),
        "### Decode throughput\n\nTokens per second after the first step.\n\n" + _throughput(view),
        "### Scores, and what differed\n\n" + _scores(view),
        _differences(view),
        "### How this was measured\n\n" + "\n".join(settings),
        "\n".join(f"- {escaped(one_line(caveat, 400))}" for caveat in verdict.caveats),
        f"Measured by mtp-gate {escaped(verdict.tool_version)} on {escaped(verdict.created[:10])}: target "
        f"{code(verdict.target_digest)}, heads {heads}, "
        f"policy {code(verdict.policy_digest)}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def model_index(view: View, name: str) -> str:
    """The card's YAML metadata for the model called `name`, between its dashes."""
    from huggingface_hub.repocard_data import EvalResult, ModelCardData

    results = []

    def add(task: str, kind: str, value: float, label: str) -> None:
        results.append(
            EvalResult(
                task_type="text-generation",
                dataset_type=f"mtp-gate-{task}",
                dataset_name=one_line(f"mtp-gate: {task}", 100),
                metric_type=kind,
                metric_value=round(value, 4),
                metric_name=one_line(label, 100),
            )
        )

    for task in view.tasks:
        for arm in task.arms:
            if arm.acceptance is not None and arm.arm in view.speculative:
                add(task.name, "acceptance", arm.acceptance, f"draft acceptance, {arm.arm}")
            if arm.score.judged:
                add(task.name, "pass_rate", arm.score.passed / arm.score.judged, f"cases passed, {arm.arm}")
            if arm.tokens_per_s is not None:
                add(task.name, "tokens_per_second", arm.tokens_per_s, f"decode throughput, {arm.arm}")
    data = ModelCardData(
        model_name=one_line(name, 96), tags=["speculative-decoding", "openvino"], eval_results=results or None
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _acceptance(view: View) -> str:
    counts: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    unknown: set[tuple[str, str]] = set()
    for task in view.tasks:
        for arm in task.arms:
            place = (task.kind or task.name, arm.arm)
            if arm.arm not in view.speculative:
                continue
            if arm.accepted is None or arm.drafted is None:
                unknown.add(place)
            else:
                counts[place].append((arm.accepted, arm.drafted))
    rows = []
    for kind, name in sorted({*counts, *unknown}):
        accepted, drafted = (sum(column) for column in zip(*counts.get((kind, name), [(0, 0)]), strict=True))
        share = (
            words.share(accepted / drafted)
            if drafted
            else "none drafted"
            if (kind, name) in counts
            else words.DASH
        )
        rows.append(
            [escaped(kind), code(name), share, f"{accepted:,} of {drafted:,}" if drafted else words.DASH]
        )
    return _table(["kind", "arm", "acceptance", "accepted of drafted"], rows)


def _throughput(view: View) -> str:
    rows = []
    for task in view.tasks:
        for spread in task.speeds:
            known = spread.low is not None and spread.high is not None
            half = f"{words.rate(spread.low)} to {words.rate(spread.high)}" if known else words.DASH
            verdict = task.verdict(spread.arm)
            ratio = words.ratio(verdict.speed_ratio) if verdict is not None else words.DASH
            rows.append(
                [
                    code(task.name),
                    code(spread.arm),
                    words.rate(spread.median),
                    half,
                    str(spread.answers),
                    ratio,
                ]
            )
    return _table(["task", "arm", "median", "middle half", "runs", f"of {escaped(view.base)}"], rows)


def _scores(view: View) -> str:
    rows = []
    for found in view.verdict.tasks:
        before, after = words.scores(found, view.base_of.get(found.arm, view.base))
        rows.append(
            [
                code(found.task),
                code(found.arm),
                before,
                after,
                f"{len(found.lost)} lost, {len(found.gained)} gained",
                f"{found.identical} of {found.prompts}",
                words.DECISIONS[found.decision],
            ]
        )
    plain = f"cases passed, {escaped(view.base)}"
    return _table(["task", "arm", plain, "with the head", "cases", "identical answers", "verdict"], rows)


def _differences(view: View) -> str:
    lines = []
    for task, prompt, pair in most_telling(view, 5):
        divergence = pair.comparison.divergence if pair.comparison is not None else None
        index = divergence.token_index if divergence is not None else None
        at = "" if index is None else f" from token {index}"
        cases = f"; lost: {', '.join(code(case) for case in pair.lost[:8])}" if pair.lost else ""
        what = "gave no answer" if pair.side.failure is not None else f"differs{at}"
        lines.append(
            f"- {code(task.name)} {code(prompt.id)}: {code(', '.join(pair.side.arms))} {what}{cases}"
        )
    return "\n".join(lines)
