"""The main job, in order: look, ask, decode, grade while decoding, look again. Decides nothing, shows nothing.

What it leaves is a run directory that `gate.conclude` reads; a crash, Ctrl-C or a full disk at any moment leaves what
was decoded readable, and says so.
"""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from evals.bases import bases
from evals.control import control_head
from evals.decode import Plan
from evals.digest import ModelDigests, changed_files, digest_dir
from evals.drafters import Drafter, inspect_drafter
from evals.endpoint.margins import parts_there
from evals.engine.prepare import prepare
from evals.engines import choose_engine, require_engine
from evals.gguf import digest_path, digest_target, opened
from evals.grade import Grader
from evals.heads import borrowed_head
from evals.inspection.pairing import require_pairing
from evals.inspection.whole import require_whole
from evals.margins import Margins
from evals.model_dir import ModelDir, require_decodable, require_vision
from evals.recording import RunWriter
from evals.records import RunReader, WriteError
from evals.tokens import TokenTable
from gate.decoding import Progress, decode_run, run_end
from gate.grading import trusted_sandbox
from gate.planning import Settings, ask, make_manifest, make_plan, open_run, planned_tasks, require_room
from gate.policy import Policy
from gate.reuse import KnownGrades, open_cache
from gate.served_check import diagnose, look_at_served
from tasks.types import Task


def run_check(
    settings: Settings, tasks: tuple[Task, ...], policy: Policy, policy_text: str, progress: Progress
) -> None:
    """Decode and grade into `settings.out`. Raises the ValueErrors of the layers below for what a user can mend.

    KeyboardInterrupt while decoding ends the run as cut short, recorded as such, and doesn't propagate.
    """
    started = time.monotonic()
    tasks = planned_tasks(tasks, settings)
    with ThreadPoolExecutor(2, thread_name_prefix="look") as pool, contextlib.ExitStack() as stack:
        model = stack.enter_context(
            opened(settings.model, need_head=settings.own_head, layout=settings.layout)
        )
        require_decodable(model)
        require_whole(model)
        require_pairing(model)
        drafter = None if settings.draft is None else inspect_drafter(model, settings.draft)
        if shown := [f"{task.name}/{prompt.id}" for task in tasks for prompt in task.prompts if prompt.image]:
            require_vision(model, shown[0])
        digests_ = pool.submit(digest_target, model)
        sandbox_ = pool.submit(trusted_sandbox, settings.sandbox_name, tasks)
        controls = [
            stack.enter_context(control_head(model, settings.seed + i)) for i in range(_controls(settings))
        ]
        heads = [
            stack.enter_context(borrowed_head(model, name, path, settings.layout))
            for name, path in settings.heads
        ]
        own = [model.head] if settings.own_head else []
        engine = choose_engine(settings.engine, [*own, *(head.layout for head in heads)])
        require_engine(
            engine,
            device=settings.device,
            scheduler=settings.scheduler,
            concurrency=settings.concurrency,
            own_head=settings.own_head,
            picture=shown[0] if shown else None,
        )
        tokens = TokenTable.load(model.path)
        asking = ask(settings, model, tasks, tokens)
        prepared = prepare(model, asking, device=settings.device, properties=settings.properties)
        require_room(settings, model, tasks, prepared, tokens)
        digests = digests_.result()
        sandbox, sandbox_report = sandbox_.result()
        seats = look_at_served(settings, _served_tokens(settings, tokens))
        manifest = make_manifest(settings, tasks, policy, digests, prepared, controls, heads, engine, drafter)
        with open_run(settings, manifest, tasks, policy_text, model.path) as writer:
            for sentence in writer.notes:
                progress.say(f"{settings.out}: {sentence}")
            writer.sandbox(sandbox_report)
            if not sandbox_report.trusted:
                writer.end(
                    run_end(started, 0.0, None, f"the sandbox can't be trusted: {sandbox_report.remedy}")
                )
                return
            plan = make_plan(
                settings, model, tasks, asking, manifest, prepared, tokens, controls, heads, drafter
            )
            cache = open_cache(settings, manifest, progress.say)

            def measure() -> float:
                spent = _measure(settings.out, plan, model, writer, progress)
                return spent + diagnose(settings.out, plan, seats, writer, progress)

            grader = Grader(
                tasks,
                sandbox,
                workers=max(1, (os.cpu_count() or 2) - 1),
                known=KnownGrades(cache, sandbox_report) if cache else None,
            )
            reason, engine_s = decode_run(
                settings, plan, writer, grader, progress, cache, started, measure=measure, served=seats
            )
            after = _digest_again(settings, digests, progress)
            if drafter is not None and not reason:
                reason = draft_changed(drafter)
            try:
                writer.end(run_end(started, engine_s, after, reason))
            except WriteError as e:
                progress.say(f"gate: {reason or e}")


def _served_tokens(settings: Settings, own: TokenTable) -> TokenTable:
    """The tokenizer of the served head: the directory's own, unless another is named. Raises TokenError."""
    named = settings.serving.tokenizer if settings.serving is not None else None
    return own if named is None else TokenTable.load(named)


def _controls(settings: Settings) -> int:
    """How many control heads: two of different seeds tell whether what was drafted and rejected leaks into the text."""
    if not settings.own_head:
        return 0
    return 2 if settings.draft_leak else int(settings.control)


def _measure(run: Path, plan: Plan, model: ModelDir, writer: RunWriter, progress: Progress) -> float:
    """Measure the margin of each first divergence from plain that has none yet, of an arm that is served as well, whose
    texts are split by the directory's tokenizer. Returns the seconds it took."""
    began = time.monotonic()
    records = RunReader(run)
    have = {(m.arm, m.task, m.prompt, m.repeat) for m in records.margins()}
    base_of = bases(plan.arms)
    elsewhere = {arm.name for arm in plan.arms if arm.endpoint is not None}
    token_bytes = TokenTable.load(model.path).token_bytes if elsewhere else bytes
    base = {
        (a.arm, a.task, a.prompt): a
        for a in records.answers()
        if base_of.get(a.arm) == a.arm and a.repeat == 0 and not a.probe
    }
    pairs = [
        (own, a)
        for a in records.answers()
        if a.repeat == 0
        and not a.probe
        and (a.arm, a.task, a.prompt, a.repeat) not in have
        and (own := base.get((base_of.get(a.arm, ""), a.task, a.prompt))) is not None
        and own.ids != a.ids
        and (a.arm not in elsewhere or (own.text != a.text and parts_there(own, a, token_bytes)))
    ]
    with Margins(plan, model, pairs, earlier=base.values()) as margins:
        if margins.planned:
            progress.say(f"measuring the margins of {margins.planned} divergences")
        for margin in margins:
            if margin.arm in elsewhere:  # its ids after the divergence may not be those that it took
                margin = msgspec.structs.replace(
                    margin, rescored_max_gap=None, rescored_max_gap_at=None, rescored_max_rank=None
                )
            writer.margin(margin)
    if margins.problem:
        progress.say(f"some margins could not be measured: {margins.problem}")
    return time.monotonic() - began


def _digest_again(settings: Settings, before: ModelDigests, progress: Progress) -> str | None:
    """The directory's digest after the run; None where it can't be read any more. Says which files changed."""
    try:
        after = digest_path(settings.model, settings.layout)
    except (ValueError, OSError) as e:
        progress.say(f"the model directory can't be read any more: {e}")
        return None
    if after.whole != before.whole:
        names = changed_files(before.files, after.files)
        progress.say(f"the model directory changed while it was being gated: {', '.join(names[:5])}")
    return after.whole


def draft_changed(drafter: Drafter) -> str:
    """Why the run can't be believed, where the draft's directory isn't what it was; "" where it is."""
    try:
        same = digest_dir(drafter.path) == drafter.digest
    except ValueError as e:
        return f"the draft's directory can't be read any more: {e}"
    return "" if same else f"the draft's directory {drafter.path} changed while it was being gated"
