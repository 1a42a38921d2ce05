"""`--remedies`: a blocked task decoded again under settings that keep the head, in the policy's order, and judged.

Measured, never guessed: each trial decodes plain twice and the arm once under the same changed settings, and is graded
and decided by the same rules and policy. The first that would be served is named, with what it costs in speed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from evals.bases import bases
from evals.diff import compare
from evals.drafters import inspect_drafter
from evals.engine.prepare import prepare
from evals.gguf import opened
from evals.grade import Grader
from evals.heads import borrowed_head
from evals.records import RunReader
from evals.remedies import OtherHead, Trial, parse_remedy, try_remedies
from evals.speed import paired_speed
from evals.tokens import TokenTable
from evals.types import Answer, Arm, Grade, Manifest, Margin, RunEnd, SandboxReport
from gate.conclude import Concluded
from gate.gathering import collect
from gate.grading import trusted_sandbox
from gate.planning import Settings, ask, make_plan
from gate.policy import Policy
from gate.types import Decision
from gate.verdict import decide

REMEDIES = "remedies.json"


class Tried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One remedy tried. decision is None where the engine refused it. speed: the arm's decode throughput under the
    remedy by that of the blocked arm, same prompts, None where it isn't known; speed_by_plain: by plain's as it was."""

    remedy: str
    decision: Decision | None
    sentence: str
    speed: float | None = None
    speed_by_plain: float | None = None


class Remedied(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blocked task and arm, what was tried in order, and the first remedy that would be served."""

    task: str
    arm: str
    tried: tuple[Tried, ...]
    served: str | None


class _Records(msgspec.Struct, frozen=True):
    """A trial's records, held in memory (`gate.evidence.Records`)."""

    manifest: Manifest
    sandbox: SandboxReport | None
    end: RunEnd | None
    given: tuple[Answer, ...]
    graded: tuple[Grade, ...]

    def answers(self) -> Iterable[Answer]:
        return self.given

    def grades(self) -> Iterable[Grade]:
        return self.graded

    def margins(self) -> Iterable[Margin]:
        return ()

    def unanswered(self) -> Iterable[Answer]:
        return ()


def find_remedies(
    settings: Settings, concluded: Concluded, policy: Policy, say: Callable[[str], None]
) -> tuple[Remedied, ...]:
    """Try the policy's remedies on each blocked task and arm of a run. Raises what `gate.check.run_check` raises."""
    here = {arm.name for arm in concluded.records.manifest.arms if arm.endpoint is None}
    blocked = [t for t in concluded.verdict.tasks if t.decision == "do_not_serve" and t.arm in here]
    remedies = [parse_remedy(text) for text in policy.remedies]
    if not blocked or not remedies:
        return ()
    records, tasks = concluded.records, tuple(concluded.tasks.values())
    sandbox, report = trusted_sandbox(settings.sandbox_name, tasks)
    arms = {arm.name: arm for arm in records.manifest.arms}
    found = []
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(
            opened(settings.model, need_head=settings.own_head, layout=settings.layout)
        )
        drafter = None if settings.draft is None else inspect_drafter(model, settings.draft)
        tokens = TokenTable.load(model.path)
        asking = ask(settings, model, tasks, tokens)
        prepared = prepare(model, asking, device=settings.device, properties=settings.properties)
        heads = [
            stack.enter_context(borrowed_head(model, name, path, settings.layout))
            for name, path in settings.heads
        ]
        others = {head.name: OtherHead(digest=head.digest, path=head.path) for head in heads}
        kept = [arm for arm in records.manifest.arms if arm.method != "control" and arm.name in here]
        plan = make_plan(
            settings,
            model,
            tasks,
            asking,
            msgspec.structs.replace(records.manifest, arms=tuple(kept)),
            prepared,
            tokens,
            (),
            heads,
            drafter,
        )
        for verdict in blocked:
            prompts = {(verdict.task, p) for p in records.manifest.prompts[verdict.task]}
            tried: list[Tried] = []
            if arms[verdict.arm].concurrency > len(prompts):
                say(
                    f"remedy for {verdict.task} {verdict.arm}: none is tried: {arms[verdict.arm].concurrency} requests "
                    f"in flight need as many prompts of the task, and it has {len(prompts)} (--variants makes more)"
                )
                continue
            trials = try_remedies(
                plan, arms[verdict.arm], prompts, remedies, in_force=prepared.in_force, heads=others
            )
            for trial in trials:
                say(f"remedy for {verdict.task} {verdict.arm}: trying {trial.remedy.text}")
                with Grader(tasks, sandbox) as grader:
                    grades = tuple(future.result() for future in [grader.submit(a) for a in trial.answers])
                tried.append(
                    _judge(trial, grades, verdict.task, concluded, report, policy, arms[verdict.arm])
                )
                if tried[-1].decision in ("serve", "serve_with_limits"):
                    break
            served = (
                tried[-1].remedy if tried and tried[-1].decision in ("serve", "serve_with_limits") else None
            )
            found.append(Remedied(verdict.task, verdict.arm, tuple(tried), served))
    return tuple(found)


def _judge(
    trial: Trial,
    grades: tuple[Grade, ...],
    task: str,
    concluded: Concluded,
    sandbox: SandboxReport,
    policy: Policy,
    blocked: Arm,
) -> Tried:
    if trial.refused is not None:
        return Tried(trial.remedy.text, None, f"the engine refuses it: {trial.refused}")
    before = concluded.records.manifest
    plain, arm = trial.arms
    manifest = msgspec.structs.replace(
        before,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        arms=trial.arms,
        tasks={task: before.tasks[task]},
        prompts={task: before.prompts[task]},
        repeats={plain.name: 2, arm.name: 1},
    )
    end = RunEnd(
        complete=True, reason="", model_digest_after=before.model_digest_before, wall_s=0.0, engine_s=0.0
    )
    tokens = TokenTable.load(concluded.run / "tokenizer")
    records = _Records(manifest, sandbox, end, trial.answers, grades)
    run = collect(records, {task: concluded.tasks[task]}, lambda base, other: compare(base, other, tokens))
    verdict = decide(run, msgspec.structs.replace(policy, waivers=()))
    ours = [a for a in trial.answers if a.arm == arm.name]
    cost = paired_speed(_first(concluded.records, task, blocked.name), ours)
    plains = paired_speed(_first(concluded.records, task, bases(before.arms)[blocked.name]), ours)
    return Tried(
        remedy=trial.remedy.text,
        decision=verdict.decision,
        sentence=verdict.tasks[0].sentence if verdict.tasks else verdict.sentence,
        speed=cost.ratio if cost else None,
        speed_by_plain=plains.ratio if plains else None,
    )


def _first(records: RunReader, task: str, arm: str) -> Iterator[Answer]:
    return (a for a in records.answers() if a.arm == arm and a.task == task and a.probe is None)


def describe(found: tuple[Remedied, ...]) -> list[str]:
    """A sentence for each blocked task and arm."""
    lines = []
    for item in found:
        where = f"{item.task} {item.arm}"
        if item.served is None:
            tried = ", ".join(t.remedy for t in item.tried) or "none applied"
            lines.append(f"remedy for {where}: none of those tried would be served ({tried})")
            continue
        best = item.tried[-1]
        cost = f", at {best.speed:.2f} times the blocked arm's speed" if best.speed is not None else ""
        by_plain = f" and {best.speed_by_plain:.2f} times plain's" if best.speed_by_plain is not None else ""
        lines.append(f"remedy for {where}: {item.served} would be served{cost}{by_plain}")
    return lines


def encode_remedies(found: tuple[Remedied, ...]) -> bytes:
    """remedies.json's bytes."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
