"""What a check sets out to do: the tasks' prompts, the arms, the manifest, and the run directory that holds them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import gate
from evals.arms import DEFAULT_SCHEDULER, build_arms, control_paths, drafter_paths
from evals.asking import asked, chats
from evals.batches import require_prompts, under_load
from evals.context import require_context
from evals.control import ControlHead
from evals.decode import Plan
from evals.digest import ModelDigests
from evals.drafters import Drafter
from evals.endpoint.arms import served_arm
from evals.engine.prepare import Prepared
from evals.heads import BorrowedHead
from evals.messages import Chat
from evals.model_dir import HeadLayout, ModelDir, ModelDirError
from evals.recording import RunWriter
from evals.records import MANIFEST, PROMPTS, SCHEMA, WriteError
from evals.tokens import TokenTable
from evals.types import Arm, Endpoint, Manifest
from gate.environment import describe_environment
from gate.policy import Policy
from tasks.depth import at_depth, base_and_depth
from tasks.types import Task
from tasks.variants import variants

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Servers to gate. plain None: the model directory's own plain arm is the measure. k: tokens that the served head
    drafts, 0 where the user doesn't say. tokenizer: a directory whose tokenizer is the servers' own. switch_command:
    makes one server the arm in GATE_ARM. metrics_url: where the speculating server's counters are, if not beside it.
    spec_log, spec_log_pattern: where its log tells acceptance, and how."""

    plain: Endpoint | None
    spec: Endpoint
    k: int = 0
    tokenizer: Path | None = None
    switch_command: str | None = None
    metrics_url: str | None = None
    spec_log: Path | None = None
    spec_log_pattern: re.Pattern[str] | None = None

    def arms(self) -> tuple[Arm, ...]:
        plain = () if self.plain is None else (served_arm(self.plain, "plain"),)
        return (*plain, served_arm(self.spec, "served", self.k))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What one check is to do. Times in seconds; `budget_s` and `hang_s` None means no limit of the user's.

    draft: a directory that drafts. max_ngram: prompt lookup, with so many tokens matched at most. With either the
    model's own head is left alone. layout: which head of a directory that has two. engine: None for the one that the
    heads' layouts ask for. model: the directory; where only servers are asked, it isn't read.
    """

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
    control: bool = True
    draft_leak: bool = False
    heads: tuple[tuple[str, Path], ...] = ()
    draft: Path | None = None
    max_ngram: int | None = None
    state_probe: bool = True
    fresh_starts: int = 0
    cache: Path | None = None
    depths: tuple[int, ...] = ()
    concurrency: tuple[int, ...] = (1,)
    layout: HeadLayout | None = None
    engine: str | None = None
    serving: Serving | None = None

    @property
    def own_head(self) -> bool:
        """Whether the model's head is what drafts."""
        return self.draft is None and self.max_ngram is None


def planned_tasks(tasks: tuple[Task, ...], settings: Settings) -> tuple[Task, ...]:
    """The tasks with N reworded prompts after their own, each followed by itself at the depths asked for.

    Raises LoadError where there are too few prompts for the requests that are to be in flight.
    """
    planned = []
    for task in tasks:
        if settings.variants and task.variants is not None:
            extra = variants(task, settings.variants, settings.seed)
            task = msgspec.structs.replace(task, prompts=(*task.prompts, *extra))
        planned += [task, *(at_depth(task, depth) for depth in settings.depths)]
    require_prompts(settings.concurrency, sum(p.after is None for task in planned for p in task.prompts))
    return tuple(planned)


def ask(settings: Settings, model: ModelDir, tasks: tuple[Task, ...], tokens: TokenTable) -> tuple[Chat, ...]:
    """What is asked, prompt by prompt, with the filler that depths need. Raises ModelDirError."""
    if settings.depths and model.source is not None and not tokens.counts:
        raise ModelDirError(
            f"--depths with {model.source}: expected a tokenizer of byte pairs, found another, which can show tokens "
            "here and not count them. Export the model, or leave --depths out."
        )
    return chats(tasks, settings.seed, tokens.count)


def require_room(
    settings: Settings, model: ModelDir, tasks: tuple[Task, ...], prepared: Prepared, tokens: TokenTable
) -> None:
    """Raise ContextError where a task at a depth doesn't fit the model's context or its KV cache."""
    prompts = ((task, prompt) for task in tasks for prompt in task.prompts)
    longest: dict[str, str] = {}
    for (task, _), text in zip(prompts, prepared.rendered, strict=True):
        if task.depth is not None and len(text) > len(longest.get(task.name, "")):
            longest[task.name] = text
    for task in tasks:
        if task.name in longest:
            require_context(
                model.path,
                tokens.count(longest[task.name]) + task.turns * task.max_new_tokens,
                f"--depths {task.depth}, task {base_and_depth(task.name)[0]}",
                device=settings.device,
                scheduler={**DEFAULT_SCHEDULER, **settings.scheduler},
                in_force=prepared.in_force,
            )


def make_manifest(
    settings: Settings,
    tasks: tuple[Task, ...],
    policy: Policy,
    digests: ModelDigests,
    prepared: Prepared,
    controls: Sequence[ControlHead],
    heads: Sequence[BorrowedHead],
    engine: str,
    drafter: Drafter | None = None,
) -> Manifest:
    single = build_arms(
        digests,
        ks=settings.ks,
        device=settings.device,
        properties=settings.properties,
        scheduler=settings.scheduler,
        versions=prepared.versions,
        controls=controls,
        heads={head.name: head.digest for head in heads} or None,
        drafter=drafter,
        max_ngram=settings.max_ngram,
        engine=engine,
    )
    every = single if settings.serving is None else (*single, *settings.serving.arms())
    arms = under_load(every, settings.concurrency, settings.seed)
    return manifest_of(settings, tasks, policy, arms, digests.whole, describe_environment(prepared))


def manifest_of(
    settings: Settings,
    tasks: tuple[Task, ...],
    policy: Policy,
    arms: tuple[Arm, ...],
    model_digest: str,
    environment: dict[str, Any],
) -> Manifest:
    """The manifest of a run of these arms."""
    return Manifest(
        schema=SCHEMA,
        tool_version=gate.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=settings.model_name,
        model_digest_before=model_digest,
        arms=arms,
        tasks={task.name: task.digest for task in tasks},
        prompts={task.name: tuple(prompt.id for prompt in task.prompts) for task in tasks},
        repeats={arm.name: 1 if arm.method == "control" else settings.repeats for arm in arms},
        policy_digest=policy.digest(),
        environment=environment,
        filler_seed=settings.seed if settings.depths else None,
    )


def make_plan(
    settings: Settings,
    model: ModelDir,
    tasks: tuple[Task, ...],
    asking: tuple[Chat, ...],
    manifest: Manifest,
    prepared: Prepared,
    tokens: TokenTable,
    controls: Sequence[ControlHead],
    heads: Sequence[BorrowedHead],
    drafter: Drafter | None = None,
) -> Plan:
    paths = {head.name: head.path for head in heads}
    return Plan(
        model=model.path,
        arms=manifest.arms,
        repeats=manifest.repeats,
        asked=asked(tasks, asking, prepared.rendered),
        layout=settings.layout,
        state_probe=settings.state_probe,
        fresh_starts=settings.fresh_starts,
        stop_ids=tokens.stop_ids,
        heads=control_paths(manifest.arms, controls)
        | drafter_paths(manifest.arms, drafter)
        | {a.name: paths[a.head] for a in manifest.arms if a.head in paths},
    )


def open_run(
    settings: Settings, manifest: Manifest, tasks: tuple[Task, ...], policy_text: str, tokenizer: Path | None
) -> RunWriter:
    """A new run directory, or the unfinished one that is there. The tasks, the policy and the tokenizer (the files of
    that directory) are kept beside the records, so that a run can be read again wherever it is taken."""
    out = settings.out
    resumed = (out / MANIFEST).exists()
    writer = RunWriter.resume(out, manifest) if resumed else RunWriter.create(out, manifest)
    try:
        _keep_beside(out, tokenizer, tasks, policy_text)
    except OSError as e:
        writer.close()
        raise WriteError(f"expected to write the run to {out}, found: {e}") from e
    return writer


def _keep_beside(out: Path, tokenizer: Path | None, tasks: tuple[Task, ...], policy_text: str) -> None:
    """Write what isn't there yet; a run that was killed meanwhile is completed. prompts.json goes last."""
    if (out / PROMPTS).exists():
        return
    for name in ("tasks", "tokenizer"):
        shutil.rmtree(out / name, ignore_errors=True)
    for task in tasks:
        if task.depth is not None:
            continue
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(task.path, out / "tasks" / task.name, ignore=ignored)
    (out / "tokenizer").mkdir()
    for name in TOKENIZER_FILES:
        if tokenizer is not None and (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, out / "tokenizer" / name)
    (out / "policy.toml").write_text(policy_text, encoding="utf-8")
    part = out / f".{PROMPTS}.part"
    part.write_bytes(msgspec.json.encode({task.name: task.prompts for task in tasks}))
    part.replace(out / PROMPTS)
