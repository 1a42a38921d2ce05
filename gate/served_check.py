"""Gate servers: ask, grade while asking, measure what the servers themselves tell. Decides nothing, shows nothing.

Also what a check of a directory does where the same head is served: which layer differs (`diagnose`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from evals.asking import asked, chats
from evals.batches import under_load
from evals.decode import Decoding, Plan
from evals.endpoint.acceptance import LogSource, log_pattern
from evals.endpoint.address import EndpointError
from evals.endpoint.margins import ServedMargins
from evals.endpoint.seat import EndpointSeat, look_at
from evals.grade import Grader
from evals.plan import Turn
from evals.recording import RunWriter
from evals.records import RunReader, WriteError
from evals.tokens import TokenTable
from evals.types import SPECULATIVE, UNKNOWN, Answer
from gate.decoding import Progress, decode_run, patience_of, run_end
from gate.environment import describe_client
from gate.grading import trusted_sandbox
from gate.planning import Settings, manifest_of, open_run, planned_tasks
from gate.policy import Policy
from tasks.types import Task


def run_served_check(
    settings: Settings, tasks: tuple[Task, ...], policy: Policy, policy_text: str, progress: Progress
) -> None:
    """Ask two servers, or one that is switched, into `settings.out`. Raises the ValueErrors of the layers below for
    what a user can mend. KeyboardInterrupt while asking ends the run as cut short, and doesn't propagate."""
    started = time.monotonic()
    serving = settings.serving
    assert serving is not None
    tasks = planned_tasks(tasks, settings)
    if settings.depths and serving.tokenizer is None:
        raise EndpointError("--depths needs --tokenizer: a depth is counted in the served model's tokens.")
    tokens = None if serving.tokenizer is None else TokenTable.load(serving.tokenizer)
    asking = chats(tasks, settings.seed, len if tokens is None else tokens.count)
    seats = look_at_served(settings, tokens)
    arms = under_load(serving.arms(), settings.concurrency, settings.seed)
    names = dict.fromkeys(seat.model for seat in seats.values() if seat.model)
    if names:
        settings = msgspec.structs.replace(settings, model_name=" and ".join(names))
    environment = describe_client({name: seat.model or UNKNOWN for name, seat in seats.items()})
    manifest = manifest_of(settings, tasks, policy, arms, UNKNOWN, environment)
    sandbox, report = trusted_sandbox(settings.sandbox_name, tasks)
    with open_run(settings, manifest, tasks, policy_text, serving.tokenizer) as writer:
        for sentence in writer.notes:
            progress.say(f"{settings.out}: {sentence}")
        writer.sandbox(report)
        if not report.trusted:
            writer.end(run_end(started, 0.0, None, f"the sandbox can't be trusted: {report.remedy}"))
            return
        rendered = [chat.canonical() for chat in asking]
        plan = Plan(
            model=settings.model,
            arms=arms,
            repeats=manifest.repeats,
            asked=asked(tasks, asking, rendered),
            stop_ids=frozenset(),
            state_probe=settings.state_probe,
            fresh_starts=settings.fresh_starts,
            renders=False,
        )

        def measure() -> float:
            return _measure(settings.out, plan, seats, writer, progress)

        grader = Grader(tasks, sandbox, workers=max(1, (os.cpu_count() or 2) - 1))
        reason, engine_s = decode_run(
            settings, plan, writer, grader, progress, None, started, measure=measure, served=seats
        )
        try:
            writer.end(run_end(started, engine_s, None, reason))
        except WriteError as e:
            progress.say(f"gate: {reason or e}")


def look_at_served(settings: Settings, tokens: TokenTable | None) -> dict[str, EndpointSeat]:
    """The seats of the arms that are served, each looked at once. tokens: the servers' own tokenizer, if it is known.

    Raises EndpointError.
    """
    serving = settings.serving
    if serving is None:
        return {}
    seats = {}
    for arm in under_load(serving.arms(), settings.concurrency, settings.seed):
        assert arm.endpoint is not None
        source = None
        if arm.method != "plain" and serving.spec_log is not None:
            if not serving.spec_log.is_file():
                raise EndpointError(
                    f"--spec-log: expected the server's log, found no file at {serving.spec_log}."
                )
            source = LogSource(serving.spec_log, serving.spec_log_pattern or log_pattern(None))
        seats[arm.name] = EndpointSeat(
            arm.endpoint,
            "plain" if arm.method == "plain" else "spec",
            patience=patience_of(settings),
            source=source,
            switch_command=serving.switch_command,
            encode=None if tokens is None else tokens.encode,
            metrics_url=serving.metrics_url if arm.method != "plain" or serving.switch_command else None,
        )
    look_at(seats)
    return seats


def _measure(
    run: Path, plan: Plan, seats: Mapping[str, EndpointSeat], writer: RunWriter, progress: Progress
) -> float:
    """Ask for each answer that differs from plain's once more without a stream, so that a fault of the stream is told
    from one of decoding; then have the servers themselves tell the margins, where they offer logprobs.

    Answers that were decoded among others, or later in a conversation, are left out: asked alone they would be others.
    Returns the seconds that it took.
    """
    began = time.monotonic()
    records = RunReader(run)
    have = {(m.arm, m.task, m.prompt) for m in records.margins()}
    alone = {arm.name for arm in plan.arms if arm.concurrency == 1}
    plain = next((arm.name for arm in plan.arms if arm.method == "plain" and arm.name in alone), "")
    firsts = {(a.arm, a.task, a.prompt): a for a in records.answers() if a.repeat == 0 and a.probe is None}
    later = {(asked.task, asked.prompt) for asked in plan.asked if asked.after is not None}
    asked = {(one.task, one.prompt): one for one in plan.asked}
    pairs = [
        (base, a)
        for (arm, task, prompt), a in firsts.items()
        if arm != plain
        and (task, prompt) in asked
        and (task, prompt) not in later
        and arm in alone
        and (base := firsts.get((plain, task, prompt))) is not None
        and not (base.failure or a.failure)
        and base.text != a.text
    ]
    arms = {arm.name: arm for arm in plan.arms}
    streamed = [(arms[a.arm], asked[a.task, a.prompt]) for _, a in pairs if a.cuts]
    _ask_again(run, plan, [Turn(arm, one, probe="whole") for arm, one in streamed], seats, writer, progress)
    pairs = [(base, a) for base, a in pairs if (a.arm, a.task, a.prompt) not in have]
    with ServedMargins(plan, seats, plain, pairs) as margins:
        if pairs:
            progress.say(f"asking the servers for the margins of {len(pairs)} divergences")
        for margin in margins:
            writer.margin(margin)
    if margins.problem:
        progress.say(f"some margins are not known: {margins.problem}")
    return time.monotonic() - began


def _ask_again(
    run: Path,
    plan: Plan,
    turns: Sequence[Turn],
    seats: Mapping[str, EndpointSeat],
    writer: RunWriter,
    progress: Progress,
) -> None:
    """Decode turns beside the plan's, those that aren't on record yet."""
    done = {a.key for a in RunReader(run).answers()}
    turns = [turn for turn in turns if turn.key not in done]
    if not turns:
        return
    progress.say(f"asking {len(turns)} times more, to tell which layer of the server differs")
    with Decoding(plan, only=turns, served=seats) as decoding:
        for answer in decoding:
            writer.answer(answer)


def diagnose(
    run: Path, plan: Plan, seats: Mapping[str, EndpointSeat], writer: RunWriter, progress: Progress
) -> float:
    """Where the directory's own arm and the served one differ, ask again without a stream and past the template, so
    that the layer can be told. Returns the seconds it took."""
    if not seats:
        return 0.0
    began = time.monotonic()
    records = RunReader(run)
    texts: dict[tuple[str, str, str], Answer] = {
        (a.arm, a.task, a.prompt): a
        for a in records.answers()
        if a.repeat == 0 and a.probe is None and not a.failure
    }
    first = [asked for asked in plan.asked if asked.after is None]
    turns = []
    for arm in plan.arms:
        here = (a for a in plan.arms if a.method in SPECULATIVE and a.endpoint is None)
        own = next((a.name for a in here if a.concurrency == arm.concurrency), "")
        for question in first if arm.endpoint is not None else ():
            mine = texts.get((own, question.task, question.prompt))
            other = texts.get((arm.name, question.task, question.prompt))
            if mine is None or other is None or mine.text == other.text:
                continue
            turns += [Turn(arm, question, probe="whole"), Turn(arm, question, probe="raw")]
    _ask_again(run, plan, turns, seats, writer, progress)
    return time.monotonic() - began
