"""Builds the view of a run from its records: one pass over the answers, memory bounded by the excerpts' budget."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from evals.bases import bases
from evals.types import Answer, Arm, Comparison, Grade, Manifest, Margin, Outcome, RunEnd, SandboxReport
from gate.types import ArmSummary, TaskVerdict, Verdict
from reports import redact as redacted
from reports.anchors import Anchors
from reports.excerpts import Shelf
from reports.facts import VALUE_LIMIT, Facts, Key, Variants
from reports.private import scrubbed, shareable
from reports.view import CaseCell, CaseRow, Pair, PromptView, Reason, TaskView, View
from tasks.images import thumbnail
from tasks.reading import read_bytes
from tasks.types import Case, Prompt, Task

PICTURE_BYTES = 2 << 20
"""All small pictures of a page together; later ones are left out."""

Found = TypeVar("Found")


def build_view(
    verdict: Verdict,
    manifest: Manifest,
    answers: Iterable[Answer],
    comparisons: Iterable[Comparison] = (),
    margins: Iterable[Margin] = (),
    grades: Iterable[Grade] = (),
    tasks: Mapping[str, Task] | None = None,
    *,
    end: RunEnd | None = None,
    sandbox: SandboxReport | None = None,
    policy_text: str | None = None,
    redact: bool = False,
) -> View:
    """What a report of this run shows. `answers` is read once and may be a generator.

    tasks: by name; one that isn't given is shown without its prompts' texts and its cases' reasons. redact: leave out
    prompts, answers, tokens and observed values; keep scores, counts, numbers and reason codes.
    """
    base_of = {arm.name: "" for arm in manifest.arms} | bases(manifest.arms)
    held = tuple(dict.fromkeys(base_of.values()))
    facts = Facts(held, comparisons, margins, grades, redact)
    shelf = Shelf(redact=redact)
    variants = Variants(held, facts, shelf, redact=redact)
    count = 0
    for answer in answers:
        count += answer.probe is None
        variants.add(answer)
    builder = _Builder(base_of, verdict, manifest, facts, shelf, variants, redact)
    shown = tuple(builder.task(name, (tasks or {}).get(name)) for name in manifest.tasks)
    clean = _clean(redacted.verdict(verdict) if redact else verdict)
    return View(
        verdict=clean,
        base=held[0] if held else "",
        base_of=base_of,
        arms=tuple(_clean_arm(arm) for arm in manifest.arms),
        tasks=shown,
        reasons=tuple(
            Reason(finding, builder.anchors.nearest(finding.task, finding.prompt, finding.arm))
            for finding in clean.findings
        ),
        margins=tuple(facts.margins.values()),
        answers=count,
        planned=sum(
            len(prompts) * manifest.repeats.get(arm.name, 1)
            for arm in manifest.arms
            for prompts in manifest.prompts.values()
        ),
        environment=shareable({**manifest.environment, **verdict.environment}),
        sandbox=shareable(msgspec.to_builtins(sandbox) if sandbox else verdict.sandbox),
        policy_text=policy_text and scrubbed(policy_text),
        end=end and msgspec.structs.replace(end, reason=scrubbed(end.reason)),
        redacted=redact,
    )


def _clean(verdict: Verdict) -> Verdict:
    """The verdict without home directories and keys in what the machine wrote."""
    return msgspec.structs.replace(
        verdict,
        model=scrubbed(verdict.model),
        sentence=scrubbed(verdict.sentence),
        what_to_do=scrubbed(verdict.what_to_do),
        caveats=tuple(scrubbed(caveat) for caveat in verdict.caveats),
        findings=tuple(msgspec.structs.replace(f, message=scrubbed(f.message)) for f in verdict.findings),
        sandbox=shareable(verdict.sandbox),
        environment=shareable(verdict.environment),
    )


def _clean_arm(arm: Arm) -> Arm:
    return msgspec.structs.replace(
        arm, properties=shareable(arm.properties), versions=shareable(arm.versions)
    )


class _Builder:
    """What all parts of the page are made from, read whole."""

    def __init__(
        self,
        base_of: Mapping[str, str],
        verdict: Verdict,
        manifest: Manifest,
        facts: Facts,
        shelf: Shelf,
        variants: Variants,
        redact: bool,
    ) -> None:
        self.anchors = Anchors()
        self._pictures_left = PICTURE_BYTES
        self._base_of, self._verdict, self._manifest = base_of, verdict, manifest
        self._groups: dict[str, list[str]] = {}
        for arm, base in base_of.items():
            self._groups.setdefault(base, []).append(arm)
        self._facts, self._shelf, self._variants, self._redact = facts, shelf, variants, redact

    def task(self, name: str, task: Task | None) -> TaskView:
        anchor = self.anchors.make(name)
        verdicts = tuple(v for v in self._verdict.tasks if v.task == name)
        prompts = self._manifest.prompts.get(name, ())
        asked = (
            {p.id: (p.text, self._picture(task, p)) for p in task.prompts}
            if task and not self._redact
            else {}
        )
        return TaskView(
            name=name,
            anchor=anchor,
            title=task.title if task else name,
            summary=task.summary if task else "",
            kind=task.kind if task else "",
            judge=task.judge if task else "",
            builtin=bool(task and task.builtin),
            verdicts=verdicts,
            arms=self._summaries(verdicts),
            speeds=tuple(
                spread
                for arm in self._manifest.arms
                if (spread := self._variants.spread(name, arm.name)) is not None
            ),
            cases=self._cases(name, task, prompts),
            prompts=tuple(
                self._prompt(name, prompt, asked.get(prompt, ("", None)), base)
                for prompt in prompts
                for base in self._groups
            ),
        )

    def _summaries(self, verdicts: tuple[TaskVerdict, ...]) -> tuple[ArmSummary, ...]:
        found = {summary.arm: summary for verdict in reversed(verdicts) for summary in verdict.arms}
        known = [found.pop(arm.name) for arm in self._manifest.arms if arm.name in found]
        return (*known, *found.values())

    def _picture(self, task: Task, prompt: Prompt) -> str | None:
        """A small picture as a data: URI, as long as the page has room for pictures."""
        if prompt.image is None:
            return None
        try:
            made = thumbnail(read_bytes(task.path, prompt.image))
        except ValueError:
            return None  # the run's copy of the task was changed; its answers can still be shown
        if len(made) > self._pictures_left:
            return None
        self._pictures_left -= len(made)
        return f"data:image/jpeg;base64,{base64.b64encode(made).decode()}"

    def _prompt(self, task: str, prompt: str, asked: tuple[str, str | None], base_arm: str) -> PromptView:
        """What the arms of one base answered to a prompt."""
        among = self._groups[base_arm]
        anchor = self.anchors.make(task, prompt)
        found = [(v, v.side(self._shelf, self._facts, among)) for v in self._variants.of(task, prompt)]
        sides = [(variant, side) for variant, side in found if side is not None]
        base = next((side for variant, side in sides if (base_arm, 0) in variant.members), None)
        pairs = []
        for variant, side in sides:
            if side is base:
                continue
            keys = variant.keys(among)
            lost, gained = _moved(base.grade if base else None, side.grade)
            pairs.append(
                Pair(
                    anchor=self.anchors.make(task, prompt, side.arms[0]),
                    side=side,
                    comparison=_first(self._facts.comparisons, keys),
                    margin=_first(self._facts.margins, keys),
                    lost=lost,
                    gained=gained,
                )
            )
        text, image = asked
        return PromptView(prompt, anchor, text, base_arm, base, tuple(pairs), image)

    def _cases(self, name: str, task: Task | None, prompts: tuple[str, ...]) -> tuple[CaseRow, ...]:
        grades = {
            arm.name: {
                prompt: {case.case: case.outcome for case in grade.cases}
                for prompt in prompts
                if (grade := self._facts.grades.get((arm.name, name, prompt, 0)))
            }
            for arm in self._manifest.arms
        }
        names = dict.fromkeys(case.name for case in task.cases) if task else {}
        for by_prompt in grades.values():
            for outcomes in by_prompt.values():
                names.update(dict.fromkeys(outcomes))
        known = {case.name: case for case in task.cases} if task else {}
        return tuple(
            CaseRow(
                name=case,
                why=known[case].why if case in known else "",
                given="" if self._redact or case not in known else _given(known[case]),
                cells=tuple(
                    self._cell(arm, case, by_prompt, grades.get(self._base_of[arm], {}))
                    for arm, by_prompt in grades.items()
                    if by_prompt
                ),
            )
            for case in names
        )

    def _cell(
        self,
        arm: str,
        case: str,
        mine: dict[str, dict[str, Outcome]],
        base: dict[str, dict[str, Outcome]],
    ) -> CaseCell:
        outcomes = {prompt: by_case[case] for prompt, by_case in mine.items() if case in by_case}
        both = [
            (base[prompt][case] == "pass", outcome == "pass")
            for prompt, outcome in outcomes.items()
            if case in base.get(prompt, {}) and "infra" not in (outcome, base[prompt][case])
        ]
        return CaseCell(arm, outcomes, both.count((True, False)), both.count((False, True)))


def _first(found: Mapping[Key, Found], keys: Iterable[Key]) -> Found | None:
    return next((found[key] for key in keys if key in found), None)


def _moved(base: Grade | None, other: Grade | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Cases that only the base passed, and that only the other passed; infrastructure trouble counts for neither."""
    if base is None or other is None:
        return (), ()
    mine = {case.case: case.outcome for case in other.cases}
    both = [(c.case, c.outcome, mine[c.case]) for c in base.cases if c.case in mine]
    judged = [(name, a == "pass", b == "pass") for name, a, b in both if "infra" not in (a, b)]
    return tuple(n for n, a, b in judged if a and not b), tuple(n for n, a, b in judged if b and not a)


def _given(case: Case) -> str:
    """What a case feeds the program or asks of the text, as a short text."""
    if case.args is not None:
        said = ", ".join(json.dumps(arg, ensure_ascii=False, default=repr) for arg in case.args)
    elif case.stdin is not None:
        said = case.stdin
    elif case.constraint is not None:
        numbers = ("min", "max", "n", "max_repeats", "start", "stop")
        given = [f"{name} {getattr(case, name)}" for name in numbers if getattr(case, name) is not None]
        said = " ".join([case.constraint, *given])
    else:
        said = ""
    return said[:VALUE_LIMIT]
