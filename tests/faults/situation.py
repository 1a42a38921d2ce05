"""A situation: a small run with a label, read by the gate as it reads any run.

label: the reason codes one of which must decide, empty for a clean situation. half: "a" or "b", by a hash of the
prompts, so that it was settled before anything was looked at; both halves are reported apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from evals.diff import Tokens, compare
from evals.types import Answer, Grade, Manifest, Margin, RunEnd, SandboxReport
from gate.gathering import collect
from gate.policy import Policy, Requirement
from gate.types import Verdict
from gate.verdict import decide
from tasks.types import Prompt, Task
from tests.faults.recorded import Margins, Recorded, divergence_key

DIGEST = "5" * 64


def _requiring(requirement: Requirement) -> Callable[[Policy], Policy]:
    return lambda policy: msgspec.structs.replace(
        policy, requirements=msgspec.structs.replace(policy.requirements, default=requirement)
    )


POLICIES: dict[str, Callable[[Policy], Policy]] = {
    "default": lambda policy: policy,
    "identical": _requiring("identical"),
    "non_inferior": _requiring("non_inferior"),
    "must be faster": lambda policy: msgspec.structs.replace(
        policy, severities={"slower-than-plain": "block"}
    ),
}
"""What is required of a situation's task, from the default policy."""


class Run(msgspec.Struct, frozen=True):
    """A run's records in memory (`gate.evidence.Records`)."""

    manifest: Manifest
    recorded_answers: tuple[Answer, ...]
    recorded_grades: tuple[Grade, ...]
    recorded_margins: tuple[Margin, ...]
    sandbox: SandboxReport | None
    end: RunEnd | None

    def answers(self) -> Iterable[Answer]:
        return self.recorded_answers

    def grades(self) -> Iterable[Grade]:
        return self.recorded_grades

    def margins(self) -> Iterable[Margin]:
        return self.recorded_margins

    def unanswered(self) -> Iterable[Answer]:
        return ()

    @property
    def arm(self) -> str:
        """Name of the speculative arm."""
        return next(a.name for a in self.manifest.arms if a.method == "mtp")

    @property
    def task(self) -> str:
        return next(iter(self.manifest.tasks))

    def of(self, arm: str) -> tuple[Answer, ...]:
        return tuple(a for a in self.recorded_answers if a.arm == arm)

    def first(self, arm: str) -> tuple[Answer, ...]:
        """The first repeat of each prompt."""
        return tuple(a for a in self.of(arm) if a.repeat == 0)

    def margin_of(self, arm: str, prompt: str) -> Margin | None:
        return next((m for m in self.recorded_margins if (m.arm, m.prompt) == (arm, prompt)), None)


class Situation(msgspec.Struct, frozen=True):
    name: str
    fault: str
    label: frozenset[str]
    half: str
    run: Run
    tokens: Tokens | None = None
    """Where it isn't the recorded model's: a vocabulary of its own."""
    policy: str = "default"
    """A name of `POLICIES`."""

    @property
    def clean(self) -> bool:
        return not self.label


def half_of(task: str, prompts: Iterable[str]) -> str:
    """ "a" or "b", decided by the names of task and prompts alone."""
    return "ab"[hashlib.sha256(f"{task}:{','.join(prompts)}".encode()).digest()[0] % 2]


def honest(recorded: Recorded, task: str, prompts: tuple[str, ...], arm: str) -> Run:
    """What was really recorded of these prompts: plain, one speculative arm, and the control arm of its K where all of
    them have it. Repeats count as far as every prompt has them. Margins are those of the divergences as recorded."""
    spec = recorded.arms[arm]
    repeats: dict[str, int] = {}
    for candidate in recorded.about.arms:
        if (
            candidate.method == "plain"
            or candidate is spec
            or (candidate.method == "control" and candidate.k == spec.k)
        ):
            repeats[candidate.name] = min(recorded.repeats(candidate.name, task, p) for p in prompts)
    repeats = {name: count for name, count in repeats.items() if count}

    def wanted(name: str, of_task: str, prompt: str, repeat: int) -> bool:
        return of_task == task and prompt in prompts and repeat < repeats.get(name, 0)

    manifest = Manifest(
        schema=1,
        tool_version="0",
        created=recorded.about.created,
        model=recorded.about.model,
        model_digest_before=DIGEST,
        arms=tuple(recorded.arms[name] for name in repeats),
        tasks={task: recorded.about.tasks[task]},
        prompts={task: prompts},
        repeats=repeats,
        policy_digest="",
    )
    run = Run(
        manifest=manifest,
        recorded_answers=tuple(a for key, a in recorded.answers.items() if wanted(*key)),
        recorded_grades=tuple(g for key, g in recorded.grades.items() if wanted(*key)),
        recorded_margins=(),
        sandbox=SandboxReport(name="bubblewrap", trusted=True),
        end=RunEnd(complete=True, reason="", model_digest_after=DIGEST, wall_s=1.0, engine_s=1.0),
    )
    return measured(run, recorded.measured)


def measured(run: Run, margins: Margins) -> Run:
    """The run with the margins that a gate would have measured: each divergence that has none gets the one that was
    replayed for just these ids (`record.py`), so that a fault's margin is as real as a sound arm's."""
    plain = {a.prompt: a for a in run.first("plain")}
    found = list(run.recorded_margins)
    for answer in run.first(run.arm):
        if run.margin_of(run.arm, answer.prompt) is None:
            margin = margins.get(divergence_key(plain[answer.prompt], answer))
            if margin is not None:
                found.append(margin)
    return msgspec.structs.replace(run, recorded_margins=tuple(found))


def verdict(run: Run, tasks: dict[str, Task], tokens: Tokens, policy: Policy) -> Verdict:
    """The gate's verdict, by the same functions that judge a run's directory."""
    task = msgspec.structs.replace(
        tasks[run.task], prompts=tuple(Prompt(id=p, text="") for p in run.manifest.prompts[run.task])
    )
    evidence = collect(run, {run.task: task}, lambda base, other: compare(base, other, tokens))
    return decide(evidence, policy)


def with_answers(run: Run, arm: str, change: Callable[[Answer], Answer | None]) -> Run:
    """The run with each of an arm's answers changed; None leaves an answer out."""
    changed = [change(a) if a.arm == arm else a for a in run.recorded_answers]
    return msgspec.structs.replace(run, recorded_answers=tuple(a for a in changed if a is not None))
