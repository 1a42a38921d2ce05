"""The report as one self-contained page: no network, readable without JavaScript, everything a model said escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import words
from reports.charts import charts
from reports.contrast import contrast, faults
from reports.sidebyside import blocks
from reports.view import Pair, PromptView, View
from reports.visible import marked, one_line

_TEMPLATES = Path(__file__).parent / "templates"

UNFOLDED = 4
"""Diverging prompts that stand open when the page is opened, most telling first."""
DETAILED_CASES = 8
"""Cases of one answer that are shown with what they were given, expected and gave."""
LISTED_REASONS = 6
"""Deciding findings that stand with the verdict; the others are in the list of findings."""


def render(view: View, *, with_charts: bool = True) -> str:
    """The whole page, bounded in size by the view's excerpts; write it as UTF-8. Charts cost matplotlib's import."""
    style, script = _source("style.css"), _source("script.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            view=view,
            verdict=view.verdict,
            arms={arm.name: arm for arm in view.arms},
            style=Markup(style),  # noqa: S704  (our own file)
            script=Markup(script),  # noqa: S704
            policy=policy,
            opened=_opened(view),
            charts=charts(view) if with_charts else [],
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.globals.update(words=words, blocks=blocks, contrast=contrast, faults=faults)
    environment.globals.update(limit=DETAILED_CASES, listed_reasons=LISTED_REASONS)
    environment.filters.update(
        line=one_line,
        count=words.count,
        share=words.share,
        rate=words.rate,
        ratio=words.ratio,
        seconds=words.seconds,
    )
    environment.filters.update(states=_states, differing=_differing)
    environment.tests["telling"] = lambda prompt: bool(prompt.pairs)
    environment.tests["alike"] = lambda prompt: not prompt.pairs and prompt.base is not None
    return environment


def _finalize(value: object) -> object:
    """Every string that a template says, with signs for what can't be seen; jinja escapes what isn't markup yet."""
    return marked(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _source(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    """The source's hash as a content security policy wants it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _opened(view: View) -> frozenset[str]:
    """Anchors of the prompts that stand open: lost cases first, then failures, then other divergences."""
    prompts = [prompt for task in view.tasks for prompt in task.prompts if prompt.pairs]
    return frozenset(prompt.anchor for prompt in sorted(prompts, key=_weight, reverse=True)[:UNFOLDED])


def _differing(prompt: PromptView) -> list[str]:
    """Arms that answered otherwise than the base, for the page's filter."""
    return [one_line(arm) for pair in prompt.pairs for arm in pair.side.arms]


def _states(prompt: PromptView) -> list[str]:
    """What the page's filter can ask of a prompt."""
    grades = [side.grade for side in (prompt.base, *(pair.side for pair in prompt.pairs)) if side is not None]
    found = {
        "differs": bool(prompt.pairs),
        "alike": not prompt.pairs and prompt.base is not None,
        "lost": any(pair.lost for pair in prompt.pairs),
        "gained": any(pair.gained for pair in prompt.pairs),
        "failing": any(grade is not None and grade.passed < len(grade.cases) for grade in grades),
        "missing": prompt.base is None
        or any(s.failure for s in (prompt.base, *(p.side for p in prompt.pairs))),
    }
    return [name for name, holds in found.items() if holds]


def _weight(prompt: PromptView) -> tuple[int, int]:
    def failed(pair: Pair) -> bool:
        return pair.side.failure is not None

    return max(len(pair.lost) for pair in prompt.pairs), sum(failed(pair) for pair in prompt.pairs)
