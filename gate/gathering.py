"""From a run's records to evidence: answers boiled down to facts and compared as they stream by.

Only the first answers that others are compared with are held meanwhile, so memory stays small for tens of thousands of
answers. Everything is computed again from the records at any time; nothing is decoded and nothing is decided.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from evals.align import common_prefix
from evals.bases import alone, bases
from evals.crossed import Crossed
from evals.endpoint.layers import Layer, layer_of
from evals.loops import find_loop, repeated_ngram_share
from evals.pieces import readings
from evals.speed import decode_rate
from evals.types import (
    SPECULATIVE,
    Answer,
    Arm,
    Comparison,
    Grade,
    Manifest,
    Margin,
    RunEnd,
    SandboxReport,
)
from gate.batched import Batches
from gate.evidence import AnswerFacts, ArmEvidence, Drafts, Evidence, RunEvidence, Twin
from tasks.types import Task

CHUNK_DRAFTS = 25
"""Drafted tokens per piece into which an answer's acceptance is cut, so that a collapse can be placed."""

Compare = Callable[[Answer, Answer], Comparison]


class EvidenceError(ValueError):
    """Records that can't be evidence: no plain arm, or a task that wasn't given."""


class Records(Protocol):
    """A run's records, as `evals.records.RunReader` reads them. `answers` is called three times."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def sandbox(self) -> SandboxReport | None: ...
    @property
    def end(self) -> RunEnd | None: ...
    def answers(self) -> Iterable[Answer]: ...
    def grades(self) -> Iterable[Grade]: ...
    def margins(self) -> Iterable[Margin]: ...
    def unanswered(self) -> Iterable[Answer]: ...


def collect(records: Records, tasks: Mapping[str, Task], compare: Compare) -> RunEvidence:
    """Gather the evidence of a run.

    compare: `evals.diff.compare` with the model's tokens bound. tasks: by name, every one of the manifest's.
    Raises EvidenceError where the manifest has no plain arm or names a task that isn't in `tasks`.
    """
    manifest = records.manifest
    base_of = bases(manifest.arms)
    if not base_of or any(arm.name not in base_of for arm in manifest.arms):
        names = ", ".join(arm.name for arm in manifest.arms) or "none"
        raise EvidenceError(
            f"expected a plain arm for every arm of the run's manifest, found: {names}. Decode the run again with one."
        )
    for name in manifest.tasks:
        if name not in tasks:
            raise EvidenceError(
                f"expected the task {name!r} of the run's manifest, found only: {', '.join(sorted(tasks))}. "
                "Give its folder with --tasks."
            )
    gathered = _gather(records, base_of, tasks, compare)
    for grade in records.grades():
        if grade.repeat == 0:
            gathered[grade.arm, grade.task].grades.setdefault(grade.prompt, grade)
    margins: defaultdict[tuple[str, str], dict[str, Margin]] = defaultdict(dict)
    for margin in records.margins():
        if margin.repeat == 0:
            margins[margin.arm, margin.task].setdefault(margin.prompt, margin)

    def arm_evidence(arm: Arm, task: str) -> ArmEvidence:
        return gathered[arm.name, task].freeze(arm, manifest.repeats.get(arm.name, 1))

    arms = {arm.name: arm for arm in manifest.arms}
    evidence: list[Evidence] = []
    for name in manifest.tasks:
        task = tasks[name]
        of_bases = {base: arm_evidence(arms[base], name) for base in dict.fromkeys(base_of.values())}
        controls = [arm_evidence(arm, name) for arm in manifest.arms if arm.method == "control"]
        for arm in manifest.arms:
            if arm.method not in SPECULATIVE:
                continue
            evidence.append(
                Evidence(
                    task=name,
                    title=task.title,
                    kind=task.kind,
                    judge=task.judge,
                    builtin=task.builtin,
                    cases=tuple(case.name for case in task.cases),
                    prompts=manifest.prompts.get(name, ()),
                    plain=of_bases[base_of[arm.name]],
                    spec=arm_evidence(arm, name),
                    controls=tuple(
                        c for c in controls if c.arm.k == arm.k and base_of[c.arm.name] == base_of[arm.name]
                    ),
                    margins=margins[arm.name, name],
                    sandbox=records.sandbox,
                    cases_by_turn=_cases_by_turn(task),
                    twin=_twin(gathered, manifest, arm, name),
                )
            )
    return RunEvidence(
        manifest=manifest,
        sandbox=records.sandbox,
        end=records.end,
        evidence=tuple(evidence),
        asked_again=sum(1 for _ in records.unanswered()),
    )


def _cases_by_turn(task: Task) -> dict[int, tuple[str, ...]]:
    if task.turns == 1:
        return {}
    return {turn: tuple(c.name for c in task.of_turn(turn).cases) for turn in range(1, task.turns + 1)}


class _Gathering:
    """What has been gathered of one arm on one task so far."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], AnswerFacts] = {}
        self.comparisons: dict[str, Comparison] = {}
        self.repeats: list[Comparison] = []
        self.probes: list[AnswerFacts] = []
        self.probe_repeats: list[tuple[AnswerFacts, Comparison]] = []
        self.grades: dict[str, Grade] = {}
        self.crossed: list[tuple[AnswerFacts, Crossed]] = []
        self.beside_alone: list[Comparison] = []
        self.texts: dict[tuple[str, str | None], Answer] = {}

    def freeze(self, arm: Arm, repeats_planned: int) -> ArmEvidence:
        return ArmEvidence(
            arm=arm,
            repeats_planned=repeats_planned,
            answers=tuple(sorted(self.answers.values(), key=lambda a: (a.session, a.order))),
            comparisons=self.comparisons,
            repeats=tuple(self.repeats),
            probes=tuple(self.probes),
            probe_repeats=tuple(self.probe_repeats),
            grades=self.grades,
            crossed=tuple(self.crossed),
            beside_alone=tuple(self.beside_alone),
        )


def _gather(
    records: Records, base_of: Mapping[str, str], tasks: Mapping[str, Task], compare: Compare
) -> defaultdict[tuple[str, str], _Gathering]:
    arms = {arm.name: arm for arm in records.manifest.arms}
    exact = {name: task.kind == "exact" for name, task in tasks.items()}
    held = frozenset(base_of.values())
    alone_of = {name: found.name for name in held if (found := alone(arms.values(), arms[name]))}
    again: set[tuple[str, str, str]] = set()
    recorded: set[tuple[str, str, str]] = set()
    batches = Batches(arms.values())
    for answer in records.answers():
        place = (answer.arm, answer.task, answer.prompt)
        batches.add(answer)
        if answer.repeat > 0 or answer.probe is not None or place in recorded:
            again.add(place)
        recorded.add(place)
    firsts: dict[tuple[str, str, str], Answer] = {}
    for answer in records.answers():
        place = (answer.arm, answer.task, answer.prompt)
        if answer.repeat == 0 and answer.probe is None and (answer.arm in held or place in again):
            firsts.setdefault(place, answer)
    twins = _twins(records.manifest)
    paired = {*twins, *twins.values()}
    gathered: defaultdict[tuple[str, str], _Gathering] = defaultdict(_Gathering)
    for answer in records.answers():
        into = gathered[answer.arm, answer.task]
        own = firsts.get((answer.arm, answer.task, answer.prompt))
        if answer.probe is None and (answer.prompt, answer.repeat) in into.answers:
            if (
                own
                and not own.failure
                and not answer.failure
                and (own.ids, own.text) != (answer.ids, answer.text)
            ):
                into.repeats.append(compare(own, answer))
            continue  # recorded twice: the first one counts, and the other may contradict it
        if answer.arm in paired and answer.repeat == 0:
            into.texts.setdefault((answer.prompt, answer.probe), answer)
        arm = arms.get(answer.arm)
        facts = facts_of(batches.counted(answer), arm.k if arm else 0)
        if answer.batch is not None:
            facts = msgspec.structs.replace(facts, rate=batches.rate(answer))
        base_name = base_of.get(answer.arm, "")
        base = firsts.get((base_name, answer.task, answer.prompt))
        if answer.probe is not None:
            into.probes.append(facts)
            if own and not own.failure and not answer.failure and answer.probe != "fill":
                into.probe_repeats.append((facts, compare(own, answer)))
            continue
        into.answers[answer.prompt, answer.repeat] = facts
        if answer.failure:
            continue
        if answer.repeat == 0 and base and not base.failure:
            into.comparisons[answer.prompt] = compare(base, answer)
        elif answer.repeat > 0 and own and not own.failure:
            into.repeats.append(compare(own, answer))
        by_itself = alone_of.get(answer.arm)
        due = by_itself or base_name
        mixed = batches.crossed(answer, lambda task, prompt, due=due: firsts.get((due, task, prompt)), exact)  # type: ignore[misc]
        if mixed is not None:
            into.crossed.append((facts, mixed))
        single = firsts.get((by_itself or "", answer.task, answer.prompt))
        if answer.repeat == 0 and single and not single.failure:
            into.beside_alone.append(compare(single, answer))
    for bare, chunk in batches.chunks():
        into = gathered[bare.arm, bare.task]
        into.crossed.append((into.answers[bare.prompt, bare.repeat], chunk))
    return gathered


def _twins(manifest: Manifest) -> dict[str, str]:
    """The served arm's name → that of the directory's own arm with as many requests in flight, where a run has both."""
    here = (a for a in reversed(manifest.arms) if a.method in SPECULATIVE and a.endpoint is None)
    own = {a.concurrency: a.name for a in here}
    return {
        a.name: own[a.concurrency] for a in manifest.arms if a.method == "served" and a.concurrency in own
    }


def _twin(
    gathered: Mapping[tuple[str, str], _Gathering], manifest: Manifest, arm: Arm, task: str
) -> Twin | None:
    """What becomes of one head in-process and served, prompt by prompt; None where the run doesn't compare that."""
    own = _twins(manifest).get(arm.name)
    if own is None:
        return None
    mine, served = gathered[own, task].texts, gathered[arm.name, task].texts
    layers: dict[str, Layer | None] = {}
    offsets: dict[str, int] = {}
    accepted, drafted = [0, 0], [0, 0]
    counted = True
    for prompt in manifest.prompts.get(task, ()):
        one, other = mine.get((prompt, None)), served.get((prompt, None))
        if one is None or other is None or one.failure or other.failure:
            continue
        layers[prompt] = layer_of(one, other, served.get((prompt, "whole")), served.get((prompt, "raw")))
        if layers[prompt] is not None:
            offsets[prompt] = common_prefix(
                one.text.encode("utf-8", "replace"), other.text.encode("utf-8", "replace")
            )
        for side, answer in enumerate((one, other)):
            counted &= answer.accepted is not None and answer.drafted is not None
            accepted[side] += answer.accepted or 0
            drafted[side] += answer.drafted or 0
    return Twin(
        arm=own,
        layers=layers,
        byte_offsets=offsets,
        accepted=(accepted[0], accepted[1]) if counted else None,
        drafted=(drafted[0], drafted[1]) if counted else None,
    )


def facts_of(answer: Answer, k: int) -> AnswerFacts:
    """Boil an answer down. k: drafted tokens per verify step of its arm."""
    ids = answer.ids
    said = readings(answer)
    digest = hashlib.sha256(msgspec.json.encode(ids))
    digest.update(answer.text.encode("utf-8", "surrogatepass"))
    return AnswerFacts(
        arm=answer.arm,
        prompt=answer.prompt,
        repeat=answer.repeat,
        order=answer.order,
        session=answer.session,
        probe=answer.probe,
        prompt_tokens=answer.prompt_tokens,
        max_new_tokens=answer.max_new_tokens,
        tokens=len(ids) if answer.ids_from is not None else answer.reported_tokens or 0,
        empty=not answer.text.strip(),
        one_token=any(_one_token(units, answer.finish == "stop") for units in said),
        loops=answer.finish == "length" and any(find_loop(units) is not None for units in said),
        repeated=max(map(repeated_ngram_share, said)),
        fingerprint=digest.hexdigest()[:32],
        finish=answer.finish,
        accepted=answer.accepted,
        drafted=answer.drafted,
        reported_tokens=answer.reported_tokens,
        multi_token_steps=sum(step > 1 for step in answer.steps),
        step_s=_step_seconds(answer),
        drafts=_drafts(answer, k),
        rate=None if answer.failure else decode_rate(answer),
        ttft_s=answer.ttft_s,
        failure=answer.failure,
        batch=answer.batch,
        ids_from=answer.ids_from,
        pieces=answer.pieces,
        usage_fault=answer.usage_fault,
        server=answer.server,
        pause_s=answer.pause_s,
    )


def _one_token(said: Sequence[int], stopped: bool) -> bool:
    """Eight tokens or more, all the same; the last may be the one that stopped the answer."""
    body = said[:-1] if stopped and len(said) > 1 else said
    return len(body) >= 8 and len(set(body)) == 1


def _step_seconds(answer: Answer) -> float | None:
    if answer.failure or not answer.decode_s or len(answer.steps) < 2:
        return None
    return answer.decode_s / (len(answer.steps) - 1)


def _drafts(answer: Answer, k: int) -> tuple[Drafts, ...]:
    """The answer's acceptance in pieces of CHUNK_DRAFTS, from its step sizes where they agree with the counters.

    A step of n tokens accepted n - 1 drafts of k; the first step is the prompt's and drafts nothing. Where the
    runtime's counters say otherwise they are believed, and the answer is one piece.
    """
    if answer.accepted is None or answer.drafted is None:
        return ()
    whole = (Drafts(position=0, accepted=answer.accepted, drafted=answer.drafted),)
    steps = answer.steps[1:]
    if k < 1 or not steps:
        return whole
    slack = max(k, answer.drafted // 10)
    accepted = sum(min(step - 1, k) for step in steps)
    if abs(k * len(steps) - answer.drafted) > slack or abs(accepted - answer.accepted) > slack:
        return whole
    pieces: list[Drafts] = []
    position = answer.steps[0]
    per_piece = max(1, CHUNK_DRAFTS // k)
    for start in range(0, len(steps), per_piece):
        piece = steps[start : start + per_piece]
        pieces.append(
            Drafts(
                position=position,
                accepted=sum(min(step - 1, k) for step in piece),
                drafted=k * len(piece),
            )
        )
        position += sum(piece)
    return tuple(pieces)
