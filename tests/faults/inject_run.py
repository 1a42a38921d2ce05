"""Faults of the run: engines that crash, counters that lie, heads that don't draft, arms that don't repeat themselves,
programs that lose cases, evidence that is missing. The same contract as `inject_tokens`."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from evals.extract import extract
from evals.types import Answer, Failure, Grade, SandboxReport
from tasks.folder import read_file
from tests.faults.inject_tokens import ROOM, Tools
from tests.faults.situation import Run, with_answers

replace = msgspec.structs.replace


def crash(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    return _failing(run, rng, Failure("crash", "the engine ended by signal 11", signal=11), tools)


def recorded_twice(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Two records of one answer that contradict each other: which of them is it?"""
    chosen = rng.choice(run.first(run.arm))
    if len(chosen.ids) < 2 * ROOM:
        return None
    ids = (*chosen.ids[:ROOM], *chosen.ids[ROOM + 1 :])
    return replace(run, recorded_answers=(*run.recorded_answers, tools.delivered(chosen, ids)))


def crash_at_build(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """openvino#38235: no answer at all."""
    failure = Failure("crash", "the engine ended by signal 6", signal=6, stage="build")
    return _failing(run, rng, failure, tools, all_prompts=True)


def stall(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    return _failing(run, rng, Failure("hang", "no token for 120 s"), tools)


def nothing_drafted(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """colibri#156: 0 of 0."""
    return _counters(run, lambda a: replace(a, accepted=0, drafted=0, steps=(1,) * len(a.ids)))


def too_few_drafts(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    return _counters(run, lambda a: replace(a, accepted=3, drafted=15 // len(run.first(run.arm)), steps=()))


def dead_head(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Nothing that the head drafts is accepted."""
    k = next(a.k for a in run.manifest.arms if a.name == run.arm)
    lucky = rng.randint(0, 2)
    return _counters(
        run,
        lambda a: replace(a, accepted=lucky, drafted=k * (len(a.ids) - 1), steps=(1,) * len(a.ids)),
    )


def collapse(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The head is good until some depth of each answer, and accepts nothing from there on."""
    k = next(a.k for a in run.manifest.arms if a.name == run.arm)
    share = rng.uniform(0.35, 0.6)
    if sum(share * a.drafted for a in run.first(run.arm) if a.drafted) < 110:
        return None

    def collapsed(answer: Answer) -> Answer:
        whole, at = [], 0
        for step in answer.steps:
            if at > share * len(answer.ids):
                break
            whole.append(step)
            at += step
        steps = (*whole, *(1 for _ in answer.ids[at:]))
        accepted = sum(step - 1 for step in whole)
        return replace(answer, steps=steps, accepted=accepted, drafted=k * (len(steps) - 1))

    return _counters(run, collapsed)


def dead_in_one_slot(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """llama.cpp#27572: of two requests one has its drafts accepted and the other doesn't."""
    first, *others = run.first(run.arm)
    k = next(a.k for a in run.manifest.arms if a.name == run.arm)
    if not others or any(len(a.ids) < 4 * ROOM for a in others):
        return None
    return _counters(
        run,
        lambda a: (
            a
            if a.prompt == first.prompt
            else replace(a, accepted=0, drafted=k * (len(a.ids) - 1), steps=(1,) * len(a.ids))
        ),
    )


def counters_lie(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    return _counters(run, lambda a: replace(a, accepted=(a.drafted or 0) + rng.randint(1, 9)))


def too_good(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Both arms say a refrain again and again and stop; every draft is right, which says nothing of the head."""
    k = next(a.k for a in run.manifest.arms if a.name == run.arm)

    def refrain(answer: Answer) -> Answer:
        unit = next(a.ids for a in run.first("plain") if a.prompt == answer.prompt)[:ROOM]
        ids = (unit * 30)[: answer.max_new_tokens - 4]
        drafted = len(ids) // (k + 1) * k
        counters = {} if answer.arm == "plain" else {"accepted": drafted, "drafted": drafted, "steps": ()}
        return tools.delivered(answer, ids, finish="stop", **counters)

    return _regraded(replace(run, recorded_answers=tuple(refrain(a) for a in run.recorded_answers)), tools)


def plain_degenerate(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """NaN in both arms: identical, and void (openvino.genai#4467)."""
    nan = tuple(tools.delivered(a, (0,) * a.max_new_tokens, finish="length") for a in run.recorded_answers)
    return _regraded(replace(run, recorded_answers=nan), tools)


def plain_empty(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Both arms stop at once."""
    stop = min(tools.tokens.stop_ids)
    empty = tuple(tools.delivered(a, (stop,), finish="stop") for a in run.recorded_answers)
    return _regraded(replace(run, recorded_answers=empty), tools)


def plain_unrepeatable(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """model_server#4376: plain's second answer is another one."""
    return _second_differs(run, rng, tools, "plain")


def spec_unrepeatable(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    return _second_differs(run, rng, tools, run.arm)


def state_leak(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """vllm#35800: the first prompt asked again after a load of others gives another answer."""
    first = run.first(run.arm)[0]
    if len(first.ids) < 2 * ROOM:
        return None
    place = rng.randrange(ROOM, len(first.ids) - ROOM)
    ids = (*first.ids[:place], *first.ids[place + 1 :])
    probe = replace(tools.delivered(first, ids), probe="state", order=40)
    return replace(run, recorded_answers=(*run.recorded_answers, probe))


def dead_start(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """openvino.genai#4425: a fresh start accepts no draft, the text unchanged."""
    first = run.first(run.arm)[0]
    good = replace(first, probe="start", session=1)
    dead = replace(
        first, probe="start", session=2, accepted=0, drafted=len(first.ids) - 1, steps=(1,) * len(first.ids)
    )
    return replace(run, recorded_answers=(*run.recorded_answers, good, dead))


def idle_start(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """A fresh start in which drafting is off: 0 of 0, the text unchanged."""
    first = run.first(run.arm)[0]
    idle = replace(first, probe="state", session=1, accepted=0, drafted=0, steps=(1,) * len(first.ids))
    return replace(run, recorded_answers=(*run.recorded_answers, idle))


def mutant(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The arm's answer is another and worse one: a mutant of the task, in the words around plain's."""
    task = tools.tasks[run.task]
    plain = rng.choice(run.first("plain"))
    worse = read_file(task, rng.choice(task.mutants).file)
    if task.judge != "constraints":
        program = extract(plain.text, language=task.language, entry=task.entry).program
        if program is None or program not in plain.text:
            return None
        worse = plain.text.replace(program, worse)
    return _answering(run, plain, worse, tools)


def program_raises(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """ISO-8601 of FIELD.md: the arm's program ends in an exception where plain's gives a result."""
    plain = rng.choice(run.first("plain"))
    lines = plain.text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.strip().startswith("return ")]
    if tools.tasks[run.task].judge == "constraints" or not places:
        return None
    place = rng.choice(places)
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    lines.insert(place, f"{indent}{rng.choice(['x = None + 1', 'x = [][0]', 'x = unknown'])}\n")
    return _answering(run, plain, "".join(lines), tools)


def slower(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The head costs more than it brings: 48 to 53 against 71.5 tokens/s (FIELD.md)."""
    rates = {a.prompt: len(a.ids) / a.decode_s for a in run.first("plain") if a.decode_s and len(a.ids) > 1}
    if len(rates) < len(run.first("plain")):
        return None
    worse = 71.5 / rng.uniform(48, 53)

    def change(a: Answer) -> Answer:
        return replace(a, decode_s=len(a.ids) / rates[a.prompt] * (1 if a.arm == "plain" else worse))

    return replace(run, recorded_answers=tuple(change(a) for a in run.recorded_answers))


def slower_at_depth(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """openvino.genai#4483: 3.4 times faster at 512 tokens of prompt, 3.1 times slower at 98K."""
    answers = run.first("plain")
    if len(answers) < 6 or not all(a.decode_s for a in answers):
        return None
    deep = {a.prompt for a in answers[len(answers) // 2 :]}
    seconds = {
        a.prompt: (a.decode_s or 0) / len(a.ids) * (3.1 if a.prompt in deep else 1 / 3.4) for a in answers
    }

    def change(a: Answer) -> Answer:
        a = replace(a, prompt_tokens=98_000 if a.prompt in deep else 512)
        return a if a.arm == "plain" else replace(a, decode_s=seconds[a.prompt] * len(a.ids))

    return replace(run, recorded_answers=tuple(change(a) for a in run.recorded_answers))


def many_mutants(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Half of many prompts get a worse answer."""
    for _ in range(4 * len(run.manifest.prompts[run.task])):
        run = mutant(run, rng, tools) or run
    return run


def plain_floor(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Plain passes nothing: nothing could be lost."""
    grades = tuple(
        replace(g, cases=tuple(replace(c, outcome="fail") for c in g.cases)) for g in run.recorded_grades
    )
    return replace(run, recorded_grades=grades)


def infra(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """opendidac#684: an outage of the sandbox, as one case of the arm sees it."""
    prompt = rng.choice(run.manifest.prompts[run.task])
    case = rng.choice(tools.tasks[run.task].cases).name
    grades = tuple(
        _infra(g, case) if (g.arm, g.prompt) == (run.arm, prompt) else g for g in run.recorded_grades
    )
    return replace(run, recorded_grades=grades)


def grades_missing(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    prompt = rng.choice(run.manifest.prompts[run.task])
    kept = tuple(g for g in run.recorded_grades if (g.arm, g.prompt) != (run.arm, prompt))
    return replace(run, recorded_grades=kept)


def answers_missing(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    gone = rng.choice(run.first(run.arm)).prompt
    return with_answers(run, run.arm, lambda a: None if a.prompt == gone else a)


def sandbox_untrusted(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    if tools.tasks[run.task].judge == "constraints":
        return None
    report = SandboxReport(
        name="bubblewrap", trusted=False, failed_probes=("network",), remedy="enable user namespaces"
    )
    return replace(run, sandbox=report)


def model_changed(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    assert run.end is not None
    return replace(run, end=replace(run.end, model_digest_after="6" * 64))


def cut_short(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    assert run.end is not None
    kept = run.recorded_answers[: len(run.recorded_answers) - 1]
    return replace(
        run, recorded_answers=kept, end=replace(run.end, complete=False, reason="the budget ran out")
    )


def no_end(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    return replace(run, end=None)


def _failing(run: Run, rng: random.Random, failure: Failure, tools: Tools, all_prompts: bool = False) -> Run:
    chosen = rng.choice(run.manifest.prompts[run.task])

    def fail(answer: Answer) -> Answer:
        if answer.prompt != chosen and not all_prompts:
            return answer
        return replace(
            answer, ids=(), text="", streamed=None, steps=(), finish="unknown", accepted=None, drafted=None,
            reported_tokens=None, ttft_s=None, decode_s=None, failure=failure,
        )  # fmt: skip

    return _regraded(with_answers(run, run.arm, fail), tools, run.arm)


def _counters(run: Run, change: Callable[[Answer], Answer]) -> Run:
    return with_answers(run, run.arm, change)


def _regraded(run: Run, tools: Tools, arm: str | None = None) -> Run:
    """Judge again what may have changed, first repeats only."""
    grades = [g for g in run.recorded_grades if arm is not None and g.arm != arm]
    grades += [
        tools.grade(a) for a in run.recorded_answers if a.repeat == 0 and (arm is None or a.arm == arm)
    ]
    return replace(run, recorded_grades=tuple(grades))


def _second_differs(run: Run, rng: random.Random, tools: Tools, arm: str) -> Run | None:
    second = [a for a in run.of(arm) if a.repeat == 1 and len(a.ids) >= 2 * ROOM]
    if not second:
        return None
    chosen = rng.choice(second)
    place = rng.randrange(ROOM, len(chosen.ids) - ROOM)
    ids = (*chosen.ids[:place], chosen.ids[place - 1], *chosen.ids[place + 1 :])
    if ids == chosen.ids:
        return None
    return with_answers(run, arm, lambda a: tools.delivered(a, ids) if a is chosen else a)


def _answering(run: Run, plain: Answer, text: str, tools: Tools) -> Run | None:
    """The run with the arm answering a prompt by this text; None where no case is lost by it."""
    ids = tools.encode(text)
    stop = (plain.ids[-1],) if plain.ids[-1] in tools.tokens.stop_ids else ()
    if len(ids) >= plain.max_new_tokens:
        return None
    margins = tuple(m for m in run.recorded_margins if m.prompt != plain.prompt)
    run = replace(run, recorded_margins=margins)
    run = tools.changed(run, plain.prompt, lambda a: tools.delivered(a, (*ids, *stop), finish=plain.finish))
    passed = {g.arm: g.passed for g in run.recorded_grades if g.prompt == plain.prompt and g.repeat == 0}
    return run if passed[run.arm] < passed["plain"] else None


def _infra(grade: Grade, case: str) -> Grade:
    return replace(
        grade, cases=tuple(replace(c, outcome="infra") if c.case == case else c for c in grade.cases)
    )
