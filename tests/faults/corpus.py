"""All situations: clean ones from real answers as they are, faulty ones by injecting one fault into a clean one.

A prompt whose answer is long (two where answers are short), with each K, is one clean situation, unless the recorded
answers really lost something there, or plain passes nothing that could be lost: those are faults of their own kinds ("a
real flip", "plain really fails every case"), labelled by counting their grades.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
from tokenizers import Tokenizer

from evals.grade import grade_answer
from evals.types import Answer, Grade
from sandbox.choose import choose
from tasks.folder import builtin_tasks
from tests.faults import inject_run as r
from tests.faults import inject_tokens as t
from tests.faults.recorded import Margins, Recorded
from tests.faults.reports import reports
from tests.faults.situation import Run, Situation, half_of, honest, measured

PROMPTS = {"csv": 1, "iso8601": 1, "count": 2, "prose": 2}
"""Prompts of one situation: enough that more than the least number of drafts is made."""

SPANS = frozenset({"skipped-or-repeated-tokens"})
LOST = frozenset({"case-lost", "constraint-lost"})

FAULTS: tuple[tuple[t.Injection, frozenset[str], int], ...] = (
    (t.several_skips, SPANS, 6),
    (t.several_repeats, SPANS, 6),
    (t.one_skip, SPANS, 6),
    (t.one_repeat, SPANS, 6),
    (t.several_skips_unmeasured, SPANS, 4),
    (t.several_repeats_unmeasured, SPANS, 4),
    (t.wrong_token, frozenset({"not-a-near-tie"}), 8),
    (t.leak_after_stop, frozenset({"post-stop-leak"}), 6),
    (t.past_the_budget, frozenset({"budget-overshoot"}), 6),
    (t.short_delivery, frozenset({"short-delivery"}), 6),
    (t.ends_without_its_stop, frozenset({"short-delivery"}), 6),
    (t.control_token, frozenset({"control-token"}), 6),
    (t.stream_says_twice, frozenset({"stream-mismatch"}), 6),
    (t.stream_drops, frozenset({"stream-mismatch"}), 4),
    (t.loops_for_ever, frozenset({"degenerate-spec"}), 4),
    (t.one_token_for_ever, frozenset({"degenerate-spec"}), 3),
    (r.crash, frozenset({"engine-crash"}), 4),
    (r.crash_at_build, frozenset({"engine-crash"}), 3),
    (r.stall, frozenset({"engine-crash"}), 4),
    (r.nothing_drafted, frozenset({"not-exercised"}), 4),
    (r.too_few_drafts, frozenset({"too-few-drafts"}), 3),
    (r.dead_head, frozenset({"dead-head"}), 4),
    (r.dead_in_one_slot, frozenset({"acceptance-collapse"}), 4),
    (r.counters_lie, frozenset({"counter-fault"}), 4),
    (r.too_good, frozenset({"acceptance-not-credible"}), 3),
    (r.plain_degenerate, frozenset({"degenerate-plain"}), 4),
    (r.plain_empty, frozenset({"degenerate-plain"}), 2),
    (r.plain_unrepeatable, frozenset({"plain-unrepeatable"}), 4),
    (r.spec_unrepeatable, frozenset({"spec-unrepeatable"}), 4),
    (r.recorded_twice, frozenset({"spec-unrepeatable"}), 3),
    (r.state_leak, frozenset({"state-leak"}), 4),
    (r.dead_start, frozenset({"unstable-start"}), 3),
    (r.idle_start, frozenset({"unstable-start"}), 3),
    (r.mutant, LOST, 8),
    (r.program_raises, frozenset({"new-crash"}), 4),
    (r.plain_floor, frozenset({"plain-floor"}), 3),
    (r.infra, frozenset({"case-not-judged"}), 4),
    (r.grades_missing, frozenset({"case-not-judged"}), 3),
    (r.answers_missing, frozenset({"answers-missing"}), 4),
    (r.sandbox_untrusted, frozenset({"sandbox-not-trusted"}), 3),
    (r.model_changed, frozenset({"model-changed"}), 3),
    (r.cut_short, frozenset({"run-incomplete"}), 3),
    (r.no_end, frozenset({"run-incomplete"}), 2),
)
"""Injection, the reason codes one of which must decide, and how many situations of it are made."""


UNMEASURED = (t.several_skips_unmeasured, t.several_repeats_unmeasured)
"""Faults that are to be told by their structure: `--no-margins`, or a replay that failed."""


def tools_for(recorded: Recorded) -> t.Tools:
    """Tools that judge for real: programs run in the sandbox, equal answers once."""
    tasks = {task.name: task for task in builtin_tasks()}
    sandbox = choose()
    tokenizer = Tokenizer.from_file(str(recorded.folder / "tokenizer" / "tokenizer.json"))

    known: dict[tuple[str, str, str, bool], Grade] = {}

    def grade(answer: Answer) -> Grade:
        key = (answer.task, answer.text, answer.finish, answer.failure is not None)
        if key not in known:
            known[key] = grade_answer(tasks[answer.task], answer, sandbox)
        return msgspec.structs.replace(known[key], arm=answer.arm, prompt=answer.prompt, repeat=answer.repeat)

    return t.Tools(
        tokens=recorded.tokens,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        grade=grade,
        tasks=tasks,
    )


def groups(recorded: Recorded) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(task, prompts of one situation), in the order in which they were recorded."""
    for task, prompts in recorded.about.prompts.items():
        for i in range(0, len(prompts) - PROMPTS[task] + 1, PROMPTS[task]):
            yield task, prompts[i : i + PROMPTS[task]]


def sound_arms(recorded: Recorded) -> list[str]:
    """mtp@K with the sample's own head, by K."""
    return [arm.name for arm in recorded.about.arms if arm.method == "mtp" and not arm.head]


def real(recorded: Recorded) -> Iterator[Situation]:
    """What was recorded, as it is: clean, a real flip that lost something, or a head that is really wrong."""
    for task, prompts in groups(recorded):
        for name in sound_arms(recorded):
            if not all(recorded.repeats(name, task, prompt) for prompt in prompts):
                continue
            run = honest(recorded, task, prompts, name)
            label = _lost(run)
            fault = "a real flip" if label else ""
            if not _passed(run):
                label, fault = frozenset({"plain-floor"}), "plain really fails every case"
            yield Situation(f"{task}/{'+'.join(prompts)}/{name}", fault, label, half_of(task, prompts), run)
    for arm in recorded.arms.values():
        if not arm.head:
            continue
        for task, all_prompts in recorded.about.prompts.items():
            prompts = tuple(p for p in all_prompts if (arm.name, task, p, 0) in recorded.answers)
            if prompts:
                run = honest(recorded, task, prompts, arm.name)
                name = f"{task}/{'+'.join(prompts)}/{arm.name}"
                fault = f"a head that is really wrong: {arm.head}"
                yield Situation(name, fault, frozenset({"dead-head"}), half_of(task, prompts), run)


def injected(clean: list[Situation], tools: t.Tools, margins: Margins) -> Iterator[Situation]:
    """Each fault put into clean situations that are drawn at random, by a seed that is the fault's own name."""
    for inject, label, count in FAULTS:
        rng = random.Random(inject.__name__)
        made = 0
        for base in rng.sample(clean, len(clean)):
            run = inject(base.run, rng, tools)
            if run is not None:
                if inject not in UNMEASURED:
                    run = measured(run, margins)
                name = f"{inject.__name__} in {base.name}"
                yield Situation(name, inject.__name__, label, base.half, run)
                made += 1
            if made == count:
                break
        else:
            raise ValueError(
                f"expected {count} situations with room for {inject.__name__}, found {made}: record more"
            )


def by_policy(recorded: Recorded, clean: list[Situation], tools: t.Tools) -> Iterator[Situation]:
    """Situations that another policy than the default blocks, or that take all prompts of a task."""
    for situation in [s for s in clean if _differs(s.run)][:6]:
        yield _again(situation, "differs where identity is required", {"not-identical"}, "identical")
    for situation in clean[::40]:
        yield _again(situation, "too few prompts for non-inferiority", {"too-few-pairs"}, "non_inferior")
    for situation in clean[5::40]:
        run = r.slower(situation.run, random.Random(situation.name), tools)
        if run is not None:
            slow = msgspec.structs.replace(situation, run=run)
            yield _again(slow, "slower where speed is required", {"slower-than-plain"}, "must be faster")
    arms = sound_arms(recorded)
    for task, prompts in recorded.about.prompts.items():
        for inject, label, policy, arm in (
            (r.many_mutants, {"inferior"}, "non_inferior", arms[0]),
            (r.slower_at_depth, {"slower-at-depth"}, "default", arms[0]),
            (r.collapse, {"acceptance-collapse"}, "default", arms[0]),
            (r.collapse, {"acceptance-collapse"}, "default", arms[2]),
        ):
            run = honest(recorded, task, prompts, arm)
            faulty = inject(run, random.Random(task), tools)
            if faulty is not None and (inject is not r.slower_at_depth or not _lost(run)):
                whole = Situation(f"{task}/all/{arm}", "", frozenset(), half_of(task, prompts), faulty)
                yield _again(whole, inject.__name__, label, policy)


def _again(situation: Situation, fault: str, label: set[str], policy: str) -> Situation:
    return msgspec.structs.replace(
        situation, name=f"{fault}: {situation.name}", fault=fault, label=frozenset(label), policy=policy
    )


def _differs(run: Run) -> bool:
    plain = {a.prompt: a.ids for a in run.first("plain")}
    return any(a.ids != plain[a.prompt] for a in run.first(run.arm))


def _passed(run: Run) -> int:
    """Cases that plain passes in a run as recorded."""
    return sum(g.passed for g in run.recorded_grades if g.arm == "plain" and g.repeat == 0)


def _lost(run: Run) -> frozenset[str]:
    """The label of a run as recorded, counted here and not by a rule: a new crash, cases or constraints lost."""
    first = {(g.arm, g.prompt): g for g in run.recorded_grades if g.repeat == 0}
    total = {"plain": 0, run.arm: 0}
    crash = False
    for prompt in run.manifest.prompts[run.task]:
        plain, spec = first["plain", prompt], first[run.arm, prompt]
        total["plain"] += plain.passed
        total[run.arm] += spec.passed
        ended = {c.case for c in plain.cases if c.outcome in ENDED}
        crash |= any(c.case in ended and c.outcome not in ENDED for c in spec.cases)
    codes = {"new-crash"} if crash else set()
    if total[run.arm] < total["plain"]:
        codes |= LOST
    return frozenset(codes)


ENDED = ("pass", "fail", "no_program", "truncated", "infra")
"""Outcomes of a case whose program didn't crash, hang or get killed."""


def _by_every_arm(recorded: Recorded, run: Run) -> bool:
    """Whether the prompts were drawn at random, and not for parting (`record.py --forks`, which asks fewer arms)."""
    prompts = run.manifest.prompts[run.task]
    return all(recorded.repeats(arm, run.task, p) for arm in sound_arms(recorded) for p in prompts)


def situations(recorded: Recorded, tools: t.Tools) -> list[Situation]:
    """The whole corpus."""
    found = list(real(recorded))
    clean = [s for s in found if s.clean]
    drawn_from = [s for s in clean if _by_every_arm(recorded, s.run)]
    return [
        *found,
        *injected(drawn_from, tools, recorded.measured),
        *by_policy(recorded, clean, tools),
        *reports(dict(tools.tasks)),
    ]
