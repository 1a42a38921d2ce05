"""Evidence: what rules read of a run, for one task and one speculative arm at a time.

Rules never see token ids or whole texts, only the facts that an answer boils down to. `gate.gathering` makes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from evals.crossed import Crossed
from evals.endpoint.layers import Layer
from evals.statistics import Judgement, PairedScore
from evals.types import (
    Arm,
    Comparison,
    Failure,
    Finish,
    Grade,
    IdsFrom,
    Manifest,
    Margin,
    RunEnd,
    SandboxReport,
)
from tasks.types import RUNS_PROGRAMS, Judge, Kind, turn_of


class Drafts(msgspec.Struct, frozen=True):
    """Tokens accepted of those drafted, from the answer's token `position` on."""

    position: int
    accepted: int
    drafted: int


class AnswerFacts(msgspec.Struct, frozen=True):
    """What rules need to know of an answer.

    one_token: eight tokens or more, all the same (NaN logits look so). loops: its tail goes round until the budget
    ended it. repeated: share of repeated 4-grams. fingerprint: digest of ids and text. tokens: delivered, or billed
    where ids aren't known. multi_token_steps: steps that delivered more than one token. step_s: seconds per step
    after the first. drafts: acceptance in pieces, empty where it isn't known. accepted, drafted: the runtime's
    counters, or read off the steps where it has none for one among several. rate: tokens per second after the first
    step, of the whole batch where several were in flight. batch: which one, None where it was alone. ids_from,
    pieces, usage_fault, server: as in `Answer`.
    """

    arm: str
    prompt: str
    repeat: int
    order: int
    session: int
    probe: str | None
    prompt_tokens: int
    max_new_tokens: int
    tokens: int
    empty: bool
    one_token: bool
    loops: bool
    repeated: float
    fingerprint: str
    finish: Finish
    accepted: int | None
    drafted: int | None
    reported_tokens: int | None
    multi_token_steps: int
    step_s: float | None
    drafts: tuple[Drafts, ...]
    rate: float | None
    ttft_s: float | None
    failure: Failure | None
    batch: int | None = None
    ids_from: IdsFrom | None = "engine"
    pieces: int | None = None
    usage_fault: str = ""
    server: dict[str, str] = {}
    pause_s: float | None = None


class ArmEvidence(msgspec.Struct, frozen=True):
    """One arm on one task. Everything by prompt is of the first repeat.

    answers: all but probes, in the order of decoding. comparisons: against plain's first answer (for plain: against
    itself, which gives its own structure). repeats: the arm's first answer against its own later ones. probes and
    probe_repeats: the same for answers asked again to find leaks and bad starts. crossed: answers that are another
    prompt's of the same batch. beside_alone: of a plain arm with several requests in flight, its first answers against
    plain's alone, where that was decoded too.
    """

    arm: Arm
    repeats_planned: int
    answers: tuple[AnswerFacts, ...]
    comparisons: dict[str, Comparison]
    repeats: tuple[Comparison, ...]
    probes: tuple[AnswerFacts, ...]
    probe_repeats: tuple[tuple[AnswerFacts, Comparison], ...]
    grades: dict[str, Grade]
    crossed: tuple[tuple[AnswerFacts, Crossed], ...] = ()
    beside_alone: tuple[Comparison, ...] = ()

    def first(self) -> tuple[AnswerFacts, ...]:
        """The answers of the first repeat, in the order of decoding."""
        return tuple(a for a in self.answers if a.repeat == 0)

    def by_prompt(self) -> dict[str, AnswerFacts]:
        """The first answer to each prompt."""
        return {a.prompt: a for a in self.first()}


class Scored(msgspec.Struct, frozen=True):
    """What statistics say of the arm's score (`gate.scores`).

    against_plain, against_control: paired by prompt; None without pairs, or without a sound control arm. judgement:
    where the task's requirement is non-inferiority, corrected for the number of tests in the run. control_worse_p:
    the p-value of "worse than the control arm", corrected likewise. prompts_needed: about how many prompts would settle
    an inconclusive judgement; None where it is settled or no number would do.
    """

    against_plain: PairedScore | None
    against_control: PairedScore | None
    control: str | None
    judgement: Judgement | None
    control_worse_p: float | None
    prompts_needed: int | None


class Twin(msgspec.Struct, frozen=True):
    """The directory's own arm beside the same head served. By prompt: the layer in which they differ, None where they
    don't (`evals.endpoint.layers`), and the first byte that differs. accepted, drafted: of both on those prompts, the
    directory's own first; None where one of them doesn't tell."""

    arm: str
    layers: dict[str, Layer | None]
    byte_offsets: dict[str, int]
    accepted: tuple[int, int] | None = None
    drafted: tuple[int, int] | None = None


class Evidence(msgspec.Struct, frozen=True):
    """All that bears on one task and one speculative arm. `scored` is filled in by the policy (`gate.scores`)."""

    task: str
    title: str
    kind: Kind
    judge: Judge
    builtin: bool
    cases: tuple[str, ...]
    prompts: tuple[str, ...]
    plain: ArmEvidence
    spec: ArmEvidence
    controls: tuple[ArmEvidence, ...]
    margins: dict[str, Margin]
    sandbox: SandboxReport | None
    scored: Scored | None = None
    cases_by_turn: dict[int, tuple[str, ...]] = {}
    """Where the task is a conversation: turn → the cases that are about it, for every turn."""
    twin: Twin | None = None

    def cases_of(self, prompt: str) -> tuple[str, ...]:
        """The cases that a prompt's answer is judged by; none for a turn that isn't judged."""
        return self.cases_by_turn.get(turn_of(prompt), ()) if self.cases_by_turn else self.cases

    @property
    def executes(self) -> bool:
        """True where judging runs a program that the model wrote."""
        return self.judge in RUNS_PROGRAMS


class RunEvidence(msgspec.Struct, frozen=True):
    """A whole run. `evidence` is ordered by task, then by arm, as the manifest has them."""

    manifest: Manifest
    sandbox: SandboxReport | None
    end: RunEnd | None
    evidence: tuple[Evidence, ...]
    asked_again: int = 0
    """Answers that servers had left unanswered before the run was gone on with."""

    def comparisons(self) -> Iterator[Comparison]:
        """Each comparison once: arms against plain, then every arm against itself."""
        seen: set[tuple[str, str]] = set()
        for item in self.evidence:
            for arm in (item.plain, item.spec, *item.controls):
                if (arm.arm.name, item.task) in seen:
                    continue
                seen.add((arm.arm.name, item.task))
                if arm is not item.plain:
                    yield from arm.comparisons.values()
                yield from arm.repeats
                yield from (comparison for _, comparison in arm.probe_repeats)
