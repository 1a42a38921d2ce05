"""Faults in what was delivered: tokens lost, doubled, wrong, past the stop or the budget, or another stream.

Each function takes a run and a seeded random generator and gives the faulty run, or None where its answers leave no
room for the fault. A fault repeats itself: it is the same in every repeat of the arm. Text, steps, counters and grades
follow from the changed ids (`Tools.delivered`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from evals.tokens import TokenTable
from evals.types import Answer, Grade
from tasks.types import Task
from tests.faults.situation import Run, with_answers

SPAN = (2, 9)
"""Tokens of a span that is lost or doubled, least and most."""

ROOM = 12
"""Tokens between two spans and at both ends that stay."""


class Tools(msgspec.Struct, frozen=True):
    """What an injection needs besides the run."""

    tokens: TokenTable
    encode: Callable[[str], Sequence[int]]
    grade: Callable[[Answer], Grade]
    tasks: Mapping[str, Task]

    def delivered(self, answer: Answer, ids: Sequence[int], **fields: object) -> Answer:
        """The answer with other ids: text, stream, steps and bill as an engine gives them for those ids."""
        text = self.tokens.decode(ids)
        share = len(ids) / max(1, len(answer.ids))
        new = msgspec.structs.replace(
            answer,
            ids=tuple(ids),
            text=text,
            streamed=None if answer.streamed is None else text,
            steps=_steps(answer.steps, len(ids)),
            accepted=None if answer.accepted is None else int(answer.accepted * share),
            drafted=None if answer.drafted is None else int(answer.drafted * share),
            reported_tokens=None
            if answer.reported_tokens is None
            else answer.reported_tokens + len(ids) - len(answer.ids),
        )
        return msgspec.structs.replace(new, **fields)

    def changed(self, run: Run, prompt: str, change: Callable[[Answer], Answer]) -> Run:
        """The run with the arm's answers to one prompt changed and judged again."""
        before = run.first(run.arm)
        run = with_answers(run, run.arm, lambda a: change(a) if a.prompt == prompt else a)
        new = next(a for a in run.first(run.arm) if a.prompt == prompt)
        if new.text == next(a for a in before if a.prompt == prompt).text:
            return run
        grade = self.grade(new)
        grades = tuple(
            msgspec.structs.replace(grade, repeat=g.repeat) if (g.arm, g.prompt) == (run.arm, prompt) else g
            for g in run.recorded_grades
        )
        return msgspec.structs.replace(run, recorded_grades=grades)


Injection = Callable[[Run, random.Random, Tools], Run | None]


def several_skips(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Two or three spans of plain's answer are lost (mlx-lm#846)."""
    return _spans(run, rng, tools, rng.randint(2, 3), _cut)


def several_repeats(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Two or three spans are said twice."""
    return _spans(run, rng, tools, rng.randint(2, 3), _doubled)


def several_skips_unmeasured(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The same where no margin was measured."""
    return _spans(run, rng, tools, rng.randint(2, 3), _cut)


def several_repeats_unmeasured(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    return _spans(run, rng, tools, rng.randint(2, 3), _doubled)


def one_skip(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """One span is lost: only its margin tells it from an honest sentence less."""
    return _spans(run, rng, tools, 1, _cut)


def one_repeat(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """One span is said twice."""
    return _spans(run, rng, tools, 1, _doubled)


def wrong_token(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """One token is another one, drawn from the answer's own; the rest stays."""
    found = _pick(run, rng, 2 * ROOM)
    if found is None:
        return None
    prompt, ids = found
    place = rng.randrange(ROOM, len(ids) - ROOM)
    others = sorted(set(ids) - {ids[place]} - tools.tokens.control_ids)
    new = (*ids[:place], rng.choice(others), *ids[place + 1 :])
    return tools.changed(run, prompt, lambda a: tools.delivered(a, new))


def leak_after_stop(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """A step goes on after the stop (sglang#31599)."""
    stops = [
        a
        for a in run.first(run.arm)
        if a.ids and a.ids[-1] in tools.tokens.stop_ids and len(a.ids) < a.max_new_tokens - 4
    ]
    if not stops:
        return None
    answer = rng.choice(stops)
    extra = answer.ids[1 : 1 + rng.randint(1, 3)]
    if rng.random() < 0.5:  # the stop was seen, and the step's other tokens were sent all the same
        return tools.changed(run, answer.prompt, lambda a: tools.delivered(a, (*a.ids, *extra)))
    budget = len(answer.ids) + len(extra)  # the cap was tested before the stop
    answers = tuple(
        msgspec.structs.replace(a, max_new_tokens=budget) if a.prompt == answer.prompt else a
        for a in run.recorded_answers
        if a.prompt != answer.prompt or len(a.ids) <= budget
    )
    if len(answers) < len(run.recorded_answers):
        return None
    run = msgspec.structs.replace(run, recorded_answers=answers)
    return tools.changed(run, answer.prompt, lambda a: tools.delivered(a, (*a.ids, *extra), finish="length"))


def past_the_budget(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """Both arms are cut by a smaller budget, and the last step of the arm runs past it."""
    found = _pick(run, rng, 4 * ROOM)
    if found is None:
        return None
    budget = len(found[1]) - rng.randint(5, ROOM)
    over = rng.randint(1, 3)

    def cut(answer: Answer) -> Answer:
        length = budget + over if answer.arm == run.arm and answer.prompt == found[0] else budget
        finish = "length" if len(answer.ids) >= budget else answer.finish
        return tools.delivered(answer, answer.ids[:length], max_new_tokens=budget, finish=finish)

    answers = tuple(cut(a) for a in run.recorded_answers)
    grades = tuple(msgspec.structs.replace(tools.grade(a), repeat=a.repeat) for a in answers)
    return msgspec.structs.replace(run, recorded_answers=answers, recorded_grades=grades, recorded_margins=())


def short_delivery(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The last tokens are billed and never delivered (ik_llama.cpp#2358)."""
    found = _pick(run, rng, 2 * ROOM)
    if found is None:
        return None
    lost = rng.randint(3, ROOM)

    def shorten(answer: Answer) -> Answer:
        billed = answer.reported_tokens if answer.reported_tokens is not None else len(answer.ids)
        return tools.delivered(answer, answer.ids[:-lost], reported_tokens=billed)

    return tools.changed(run, found[0], shorten)


def ends_without_its_stop(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The last tokens are lost and not billed either; nothing but the missing stop token tells it from an answer."""
    found = _pick(run, rng, 2 * ROOM)
    if found is None or found[1][-1] not in tools.tokens.stop_ids:
        return None
    ids = found[1][: -rng.randint(3, ROOM)]
    return tools.changed(run, found[0], lambda a: tools.delivered(a, ids, finish="stop"))


def control_token(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """A control token stands inside the answer (ds4#797). The text doesn't show it."""
    found = _pick(run, rng, 2 * ROOM)
    controls = sorted(tools.tokens.control_ids - tools.tokens.stop_ids)
    if found is None or not controls:
        return None
    place, token = rng.randrange(ROOM, len(found[1]) - ROOM), rng.choice(controls)
    return tools.changed(run, found[0], lambda a: tools.delivered(a, (*a.ids[:place], token, *a.ids[place:])))


def stream_says_twice(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """A chunk of the stream sends again what was sent (TensorRT-LLM#3753); ids and final text are right."""
    return _streamed(run, rng, lambda text, at, n: text[:at] + text[max(0, at - n) :])


def stream_drops(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The stream loses a few characters."""
    return _streamed(run, rng, lambda text, at, n: text[:at] + text[at + n :])


def loops_for_ever(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The arm says one sentence until its budget is spent."""
    found = _pick(run, rng, 4 * ROOM)
    if found is None:
        return None
    start, size = rng.randrange(ROOM, 2 * ROOM), rng.randint(3, ROOM)

    def loop(answer: Answer) -> Answer:
        unit = answer.ids[start : start + size]
        copies = answer.max_new_tokens // size + 1
        return tools.delivered(
            answer, (*answer.ids[:start], *(unit * copies))[: answer.max_new_tokens], finish="length"
        )

    return tools.changed(run, found[0], loop)


def one_token_for_ever(run: Run, rng: random.Random, tools: Tools) -> Run | None:
    """The arm's logits are NaN and plain's are not: token 0 until the budget."""
    prompt = rng.choice(run.manifest.prompts[run.task])
    return tools.changed(run, prompt, lambda a: tools.delivered(a, (0,) * a.max_new_tokens, finish="length"))


def _steps(steps: Sequence[int], total: int) -> tuple[int, ...]:
    """Step sizes like these for another number of tokens."""
    out: list[int] = []
    for size in steps:
        out.append(min(size, total - sum(out)))
        if sum(out) >= total:
            break
    return (*(s for s in out if s), *(1 for _ in range(total - sum(out))))


def _pick(run: Run, rng: random.Random, least: int) -> tuple[str, tuple[int, ...]] | None:
    """A prompt to which the arm gave plain's own answer, so that the fault is all that differs, and that answer's ids.

    least: its length in tokens.
    """
    given = {a.prompt: a.ids for a in run.first(run.arm)}
    long = [a for a in run.first("plain") if len(a.ids) >= least and given.get(a.prompt) == a.ids]
    chosen = rng.choice(long) if long else None
    return None if chosen is None else (chosen.prompt, chosen.ids)


def _spans(
    run: Run,
    rng: random.Random,
    tools: Tools,
    count: int,
    change: Callable[[Sequence[int], int, int], list[int]],
) -> Run | None:
    found = _pick(run, rng, (count + 1) * 2 * ROOM)
    if found is None:
        return None
    prompt, ids = found
    width = (len(ids) - 2 * ROOM) // count
    new = list(ids)
    for part in reversed(range(count)):
        at = ROOM + part * width + rng.randrange(max(1, width - ROOM))
        new = change(new, at, rng.randint(*SPAN))
    if tuple(new) == ids:
        return None
    budget = run.first("plain")[0].max_new_tokens
    cut = {"finish": "length"} if len(new) > budget else {}
    return tools.changed(run, prompt, lambda a: tools.delivered(a, new[:budget], **cut))


def _cut(ids: Sequence[int], at: int, size: int) -> list[int]:
    return [*ids[:at], *ids[at + size :]]


def _doubled(ids: Sequence[int], at: int, size: int) -> list[int]:
    return [*ids[:at], *ids[at - size :]]


def _streamed(run: Run, rng: random.Random, change: Callable[[str, int, int], str]) -> Run | None:
    long = [a for a in run.first(run.arm) if a.streamed is not None and len(a.text) >= 40]
    if not long:
        return None
    answer, size = rng.choice(long), rng.randint(1, 12)
    new = change(answer.text, rng.randrange(15, len(answer.text) - 15), size)
    if new == answer.text:
        return None
    return with_answers(
        run, run.arm, lambda a: msgspec.structs.replace(a, streamed=new) if a.prompt == answer.prompt else a
    )
