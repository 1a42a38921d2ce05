"""The main job, in order: look, ask, decode, grade while decoding, look again. Decides nothing, shows nothing.

What it leaves is a run directory that `gate.conclude` reads; a crash, Ctrl-C or a full disk at any moment leaves what
was decoded readable, and says so.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

import gate
from evals.arms import build_arms
from evals.decode import Asked, Decoding, Plan
from evals.digest import ModelDigests, changed_files, digest_model
from evals.engine.prepare import Prepared, prepare
from evals.engine.process import Patience
from evals.grade import Grader
from evals.model_dir import ModelDir, inspect_model, require_decodable
from evals.records import RunReader, RunWriter, WriteError
from evals.tokens import TokenTable
from evals.types import Answer, Grade, Manifest, RunEnd, SandboxReport
from gate.environment import describe_environment
from gate.policy import Policy
from tasks.types import Task
from tasks.variants import variants

if TYPE_CHECKING:
    from sandbox.contract import Sandbox

SCHEMA = 1
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What one check is to do. Times in seconds; `budget_s` and `hang_s` None means no limit of the user's."""

    model: Path
    model_name: str
    out: Path
    ks: tuple[int, ...] = (1,)
    repeats: int = 2
    device: str = "CPU"
    properties: dict[str, str] = {}
    scheduler: dict[str, int | bool] = {}
    sandbox_name: str | None = None
    budget_s: float | None = None
    hang_s: float | None = None
    sequential: bool | None = None
    variants: int = 0
    seed: int = 0


class Progress(Protocol):
    """What wants to know how far a check is."""

    def planned(self, answers: int, arms: tuple[str, ...]) -> None: ...
    def answered(self, answer: Answer, remaining_s: float | None) -> None: ...
    def say(self, text: str) -> None: ...


def run_check(
    settings: Settings, tasks: tuple[Task, ...], policy: Policy, policy_text: str, progress: Progress
) -> None:
    """Decode and grade into `settings.out`. Raises the ValueErrors of the layers below for what a user can mend.

    KeyboardInterrupt while decoding ends the run as cut short, recorded as such, and doesn't propagate.
    """
    started = time.monotonic()
    tasks = tuple(_with_variants(task, settings) for task in tasks)
    model = inspect_model(settings.model)
    require_decodable(model)
    with ThreadPoolExecutor(2, thread_name_prefix="look") as pool:
        digests_ = pool.submit(digest_model, model)
        sandbox_ = pool.submit(trusted_sandbox, settings.sandbox_name, tasks)
        texts = [prompt.text for task in tasks for prompt in task.prompts]
        prepared = prepare(model, texts, device=settings.device, properties=settings.properties)
        digests = digests_.result()
        sandbox, sandbox_report = sandbox_.result()
    manifest = _manifest(settings, tasks, policy, digests, prepared)
    with _open_run(settings, manifest, tasks, policy_text) as writer:
        writer.sandbox(sandbox_report)
        if not sandbox_report.trusted:
            writer.end(_end(started, 0.0, None, f"the sandbox can't be trusted: {sandbox_report.remedy}"))
            return
        reason, engine_s = _decode(
            settings, tasks, manifest, prepared, model, writer, sandbox, progress, started
        )
        after = (
            digest_model(inspect_model(settings.model)).whole if not reason else _digest_again(settings.model)
        )
        if after is not None and after != digests.whole:
            names = changed_files(digests.files, digest_model(inspect_model(settings.model)).files)
            progress.say(f"the model directory changed while it was being gated: {', '.join(names[:5])}")
        writer.end(_end(started, engine_s, after, reason))


def _decode(
    settings: Settings,
    tasks: tuple[Task, ...],
    manifest: Manifest,
    prepared: Prepared,
    model: ModelDir,
    writer: RunWriter,
    sandbox: Sandbox | None,
    progress: Progress,
    started: float,
) -> tuple[str, float]:
    """Decode what is missing and grade all that isn't graded. Returns why it was cut short ("" if it wasn't) and the
    engines' seconds."""
    rendered = iter(prepared.rendered)
    asked = tuple(
        Asked(task=task.name, prompt=prompt.id, text=next(rendered), max_new_tokens=task.max_new_tokens)
        for task in tasks
        for prompt in task.prompts
    )
    plan = Plan(
        model=settings.model,
        arms=manifest.arms,
        repeats=manifest.repeats,
        asked=asked,
        stop_ids=TokenTable.load(model.path).stop_ids,
    )
    left = None if settings.budget_s is None else max(settings.budget_s - (time.monotonic() - started), 0.001)
    reason = ""
    patience = None if settings.hang_s is None else Patience(first_s=settings.hang_s, least_s=settings.hang_s)
    decoding = Decoding(
        plan, done=frozenset(writer.done), budget_s=left, sequential=settings.sequential, patience=patience
    )
    try:
        with Grader(tasks, sandbox, workers=max(1, (os.cpu_count() or 2) - 1)) as grader:
            grading = _Grading(grader, writer)
            for answer in _ungraded(settings.out):
                grading.take(answer)
            with decoding:
                progress.planned(decoding.planned, tuple(a.name for a in manifest.arms))
                for answer in decoding:
                    writer.answer(answer)
                    progress.answered(answer, decoding.remaining_s)
                    grading.take(answer)
            if decoding.stopped:
                reason = f"the {decoding.stopped} ran out with {decoding.planned - decoding.done_count} answers to go"
            grading.finish()
    except KeyboardInterrupt:
        reason = f"interrupted with {decoding.planned - decoding.done_count} answers to go"
    except WriteError as e:
        reason = str(e)
    return reason, decoding.engine_s


class _Grading:
    """Grades answers while others are being decoded, and records each grade as soon as it is there."""

    def __init__(self, grader: Grader, writer: RunWriter):
        self._grader, self._writer = grader, writer
        self._pending: deque[Future[Grade]] = deque()

    def take(self, answer: Answer) -> None:
        """Have an answer graded; record what is done by now. Raises WriteError."""
        if answer.probe is None:
            self._pending.append(self._grader.submit(answer))
        while self._pending and self._pending[0].done():
            self._writer.grade(self._pending.popleft().result())

    def finish(self) -> None:
        """Wait for the rest and record it. Raises WriteError."""
        while self._pending:
            self._writer.grade(self._pending.popleft().result())


def _ungraded(run: Path) -> Iterator[Answer]:
    """Answers that an earlier part of this run decoded and didn't come to grade."""
    reader = RunReader(run)
    graded = {(g.arm, g.task, g.prompt, g.repeat) for g in reader.grades()}
    return (a for a in reader.answers() if (a.arm, a.task, a.prompt, a.repeat) not in graded)


def trusted_sandbox(name: str | None, tasks: tuple[Task, ...]) -> tuple[Sandbox | None, SandboxReport]:
    """The sandbox that programs will run in, and what the run's record says of it."""
    from sandbox.choose import choose
    from sandbox.contract import SandboxUnavailable

    if all(task.judge == "constraints" for task in tasks):
        return None, SandboxReport(name="none", trusted=True, describes={"why": "no task runs programs"})
    try:
        sandbox = choose(name)
    except SandboxUnavailable as e:
        return None, SandboxReport(name=name or "none", trusted=False, remedy=str(e))
    return sandbox, SandboxReport(name=sandbox.name, trusted=True, describes=dict(sandbox.describe()))


def _with_variants(task: Task, settings: Settings) -> Task:
    """The task with N reworded prompts after its own."""
    if not settings.variants or task.variants is None:
        return task
    extra = variants(task, settings.variants, settings.seed)
    return msgspec.structs.replace(task, prompts=(*task.prompts, *extra))


def _manifest(
    settings: Settings, tasks: tuple[Task, ...], policy: Policy, digests: ModelDigests, prepared: Prepared
) -> Manifest:
    arms = build_arms(
        digests,
        ks=settings.ks,
        device=settings.device,
        properties=settings.properties,
        scheduler=settings.scheduler,
        versions=prepared.versions,
    )
    return Manifest(
        schema=SCHEMA,
        tool_version=gate.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=settings.model_name,
        model_digest_before=digests.whole,
        arms=arms,
        tasks={task.name: task.digest for task in tasks},
        prompts={task.name: tuple(prompt.id for prompt in task.prompts) for task in tasks},
        repeats={arm.name: settings.repeats for arm in arms},
        policy_digest=policy.digest(),
        environment=describe_environment(prepared),
    )


def _open_run(settings: Settings, manifest: Manifest, tasks: tuple[Task, ...], policy_text: str) -> RunWriter:
    """A new run directory, or the unfinished one that is there. The tasks, the policy and the tokenizer are kept
    beside the records, so that a run can be read again wherever it is taken."""
    out, model = settings.out, settings.model
    if (out / "manifest.json").exists():
        return RunWriter.resume(out, manifest)
    writer = RunWriter.create(out, manifest)
    try:
        for task in tasks:
            shutil.copytree(
                task.path, out / "tasks" / task.name, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        (out / "policy.toml").write_text(policy_text, encoding="utf-8")
        (out / "tokenizer").mkdir()
        for name in TOKENIZER_FILES:
            if (model / name).is_file():
                shutil.copyfile(model / name, out / "tokenizer" / name)
        (out / "prompts.json").write_bytes(msgspec.json.encode({task.name: task.prompts for task in tasks}))
    except OSError as e:
        writer.close()
        raise WriteError(f"expected to write the run to {out}, found: {e}") from e
    return writer


def _digest_again(path: Path) -> str | None:
    """The directory's digest after a run that was cut short; None where it can't be read any more."""
    try:
        return digest_model(inspect_model(path)).whole
    except (ValueError, OSError):
        return None


def _end(started: float, engine_s: float, after: str | None, reason: str) -> RunEnd:
    return RunEnd(
        complete=not reason,
        reason=reason,
        model_digest_after=after,
        wall_s=round(time.monotonic() - started, 3),
        engine_s=round(engine_s, 3),
    )
