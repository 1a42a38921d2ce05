"""Decode the real answers that the fault corpus is made from, once, and keep them under tests/faults/answers.

usage: python -m tests.faults.record MODEL [--prompts 16] [--other-head DIR]   (7 minutes of two idle cores)
       python -m tests.faults.record MODEL --forks 40                          (then)
       python -m tests.faults.record MODEL --losses 60                         (then)
       python -m tests.faults.record MODEL --margins                           (last, and after each new fault)

Every task gets prompts from its own template (seed 11: none of them is one of the task's own prompts, on which
thresholds could have been looked at). Plain is decoded twice, every K once; mtp@1 a second time and control@1 on the
first prompts. Heads that are wrong are real as well (`bad_heads`), on a few prompts. Grades come from the sandbox.
Margins are replayed for every divergence of the corpus, those that were injected included.

`--forks N` then looks through N more prompts of prose and N / 3 of code (seed 12) for such that part from plain at
some K, and adds those: near-ties are rare, and a gate must not cry wolf over them. `--losses N` looks through N of code
(same seed, without those that are there) for such on which a flip really cost cases, which is rarer still.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

import msgspec

from evals.arms import build_arms
from evals.control import control_head
from evals.decode import Asked, Decoding, Plan
from evals.digest import digest_model
from evals.engine.prepare import prepare
from evals.grade import Grader
from evals.margins import Margins, first_difference
from evals.model_dir import inspect_model
from evals.tokens import TokenTable
from evals.types import Answer, Arm, Grade
from sandbox.choose import choose
from tasks.folder import builtin_tasks
from tasks.types import Task
from tasks.variants import variants
from tests.faults import bad_heads
from tests.faults.corpus import situations, tools_for
from tests.faults.recorded import FOLDER, About, Measured, Recorded, divergence_key

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
SEED = 11
PROPERTIES = {"KV_CACHE_PRECISION": "u4"}
"""So coarse a KV cache flips near-ties on one prompt in five; with the default u8 hardly any flips on this machine."""

KS = (1, 2, 3, 4, 5)
MOST = 60
"""Prompts a task of each seed, at most."""

FORK_SEED = 12
FORK_KS = (1, 3)
AGAIN = 4
"""Prompts a task that mtp@1 answers twice."""

BAD_PROMPTS = 2
"""Prompts a task for each wrong head."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument(
        "--other-head", type=Path, help="another model of the same shape, whose head doesn't belong"
    )
    parser.add_argument("--forks", type=int, help="add prompts on which the arms part, from so many a task")
    parser.add_argument(
        "--losses", type=int, help="add prompts on which a flip cost cases, from so many a task"
    )
    parser.add_argument("--margins", action="store_true", help="measure the margins that are missing")
    options = parser.parse_args()
    if options.margins:
        record_margins(options.model)
    elif options.forks:
        record_forks(options.model, options.forks)
    elif options.losses:
        record_losses(options.model, options.losses)
    else:
        record_answers(options.model, options.prompts, options.other_head)


def record_answers(path: Path, prompts: int, other_head: Path | None) -> None:
    model = inspect_model(path)
    digests = digest_model(model)
    tasks = _tasks(prompts)
    prepared = prepare(model, [p.text for t in tasks for p in t.prompts], properties=PROPERTIES)
    asked = _asked(tasks, prepared.rendered)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, control_head(model, seed=1) as control:
        arms = build_arms(
            digests, ks=KS, properties=PROPERTIES, versions=prepared.versions, controls=[control]
        )
        usual = [a for a in arms if a.method != "control"]
        control_arm = next(a for a in arms if a.method == "control" and a.k == 1)
        heads = {f: bad_heads.make(path, Path(scratch) / f, f) for f in bad_heads.FAULTS}
        if other_head:
            heads["other_model"] = other_head
        wrong = {f"mtp@1:{name}": head for name, head in heads.items()}
        wrong_arms = [
            msgspec.structs.replace(arms[1], name=n, head=n.split(":")[1], head_digest="0" * 64)
            for n in wrong
        ]
        again = _first(asked, AGAIN)
        decode(path, [*usual, control_arm], {"plain": 2, "mtp@1": 2}, again, {control_arm.name: control.path})
        decode(path, usual, {"plain": 2}, [a for a in asked if a not in again], {})
        answers = decode(path, wrong_arms, {}, _first(asked, BAD_PROMPTS), wrong)
    (FOLDER / "tokenizer").mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        shutil.copyfile(path / name, FOLDER / "tokenizer" / name)
    about = About(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=path.name,
        model_digest=digests.whole,
        versions=prepared.versions,
        environment={"device": prepared.device_name, **prepared.in_force},
        arms=(*usual, control_arm, *wrong_arms),
        prompts={t.name: tuple(p.id for p in t.prompts) for t in tasks},
        tasks={t.name: t.digest for t in tasks},
    )
    (FOLDER / "about.json").write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=1) + b"\n")
    write("answers", answers)
    write("grades", grade(tasks, answers))
    write("margins", [])
    (FOLDER / "answers.part").unlink()


def record_forks(path: Path, count: int) -> None:
    """Add those of `count` further prompts (of prose; a third as many of code) on which an arm parts from plain."""
    tasks = [
        msgspec.structs.replace(task, prompts=task.prompts[: count if task.kind == "prose" else count // 3])
        for task in _tasks(count, FORK_SEED)
        if task.kind != "exact"
    ]
    _record_more(path, tasks, lambda plain, other: first_difference(plain, other) is not None)


def record_losses(path: Path, count: int) -> None:
    """Add those of `count` further prompts of code on which an arm parts from plain and passes fewer cases."""
    there = Recorded().about.prompts
    tasks = [
        msgspec.structs.replace(task, prompts=tuple(p for p in task.prompts if p.id not in there[task.name]))
        for task in _tasks(count, FORK_SEED)
        if task.kind not in ("exact", "prose")
    ]

    def lost(plain: Answer, other: Answer) -> bool:
        if first_difference(plain, other) is None:
            return False
        before, after = grade(tasks, [plain, other])
        return after.passed < before.passed

    _record_more(path, tasks, lost)


def _record_more(path: Path, tasks: list[Task], wanted: Callable[[Answer, Answer], bool]) -> None:
    """Decode prompts plain and by `FORK_KS`; add those of which an arm's answer beside plain's is wanted."""
    recorded = Recorded()
    model = inspect_model(path)
    asked = _asked(
        tasks, prepare(model, [p.text for t in tasks for p in t.prompts], properties=PROPERTIES).rendered
    )
    arms = [recorded.arms["plain"], *(recorded.arms[f"mtp@{k}"] for k in FORK_KS)]
    answers = decode(path, arms, {}, asked, {})
    plain = {(a.task, a.prompt): a for a in answers if a.arm == "plain"}
    found = {(a.task, a.prompt) for a in answers if wanted(plain[a.task, a.prompt], a)}
    chosen = [a for a in asked if (a.task, a.prompt) in found]
    answers = [a for a in decode(path, arms[:1], {"plain": 2}, chosen, {}) if (a.task, a.prompt) in found]
    for task in tasks:
        more = tuple(a.prompt for a in chosen if a.task == task.name)
        recorded.about.prompts[task.name] = (*recorded.about.prompts[task.name], *more)
    (FOLDER / "about.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(recorded.about), indent=1) + b"\n"
    )
    write("grades", [*recorded.grades.values(), *grade(tasks, answers)])
    write("answers", [*recorded.answers.values(), *answers])
    (FOLDER / "answers.part").unlink()
    print(f"{len(chosen)} of {len(asked)} prompts were added")


def record_margins(path: Path) -> None:
    """Replay each divergence of the corpus's prompts that wasn't yet; keep what is still in use."""
    recorded = Recorded()
    model = inspect_model(path)
    tasks = [*_tasks(MOST, SEED), *_tasks(MOST, FORK_SEED)]
    rendered = iter(prepare(model, [p.text for t in tasks for p in t.prompts]).rendered)
    asked = [Asked(t.name, p.id, next(rendered), t.max_new_tokens) for t in tasks for p in t.prompts]
    pairs: dict[str, tuple[Answer, Answer]] = {}
    for situation in situations(recorded, tools_for(recorded)):
        if situation.tokens is None and situation.policy == "default":
            plain = {a.prompt: a for a in situation.run.first("plain")}
            for answer in situation.run.first(situation.run.arm):
                if first_difference(plain[answer.prompt], answer) is not None:
                    pairs[divergence_key(plain[answer.prompt], answer)] = (plain[answer.prompt], answer)
    known = {key: margin for key, margin in recorded.measured.items() if key in pairs}
    missing = [pair for key, pair in pairs.items() if key not in known]
    stop_ids = recorded.tokens.stop_ids
    plan = Plan(model=path, arms=recorded.about.arms, repeats={}, asked=tuple(asked), stop_ids=stop_ids)
    print(f"{len(known)} margins are there, {len(missing)} to measure", flush=True)
    while missing:
        batch = {(other.arm, other.task, other.prompt): (base, other) for base, other in missing}
        missing = [pair for pair in missing if pair not in batch.values()]
        with Margins(plan, model, batch.values()) as margins:
            for margin in margins:
                base, other = batch[margin.arm, margin.task, margin.prompt]
                known[divergence_key(base, other)] = margin
                write("margins", [Measured(key, m) for key, m in known.items()])
        if margins.problem:
            print(f"not all could be measured: {margins.problem}")
        print(f"{len(known)} are there, {len(missing)} to measure", flush=True)
    write("margins", [Measured(key, margin) for key, margin in known.items()])


def decode(
    model: Path,
    arms: list[Arm] | tuple[Arm, ...],
    repeats: dict[str, int],
    asked: list[Asked],
    heads: dict[str, Path],
) -> list[Answer]:
    stop_ids = TokenTable.load(model).stop_ids
    plan = Plan(
        model=model, arms=tuple(arms), repeats=repeats, asked=tuple(asked), stop_ids=stop_ids, heads=heads
    )
    part = FOLDER / "answers.part"
    answers = msgspec.json.Decoder(Answer).decode_lines(part.read_bytes()) if part.exists() else []
    with Decoding(plan, done=frozenset(a.key for a in answers)) as decoding, part.open("ab") as file:
        for answer in decoding:
            answers.append(answer)
            file.write(msgspec.json.encode(answer) + b"\n")
            file.flush()
            if len(answers) % 25 == 0:
                print(
                    f"{len(answers)} answers, {decoding.remaining_s or 0:.0f} s to go in this part",
                    flush=True,
                )
    return answers


def _tasks(prompts: int, seed: int = SEED) -> list[Task]:
    return [msgspec.structs.replace(task, prompts=variants(task, prompts, seed)) for task in builtin_tasks()]


def _asked(tasks: list[Task], rendered: tuple[str, ...]) -> list[Asked]:
    """All prompts, the tasks in turn."""
    texts = iter(rendered)
    by_task = [[Asked(t.name, p.id, next(texts), t.max_new_tokens) for p in t.prompts] for t in tasks]
    return [asked for turn in zip_longest(*by_task) for asked in turn if asked is not None]


def _first(asked: list[Asked], count: int) -> list[Asked]:
    """The first prompts of each task."""
    return [
        a for t in dict.fromkeys(a.task for a in asked) for a in [x for x in asked if x.task == t][:count]
    ]


def grade(tasks: list[Task], answers: list[Answer]) -> list[Grade]:
    with Grader(tasks, choose()) as grader:
        return [future.result() for future in [grader.submit(answer) for answer in answers]]


def write(name: str, records: Sequence[object]) -> None:
    """gzip without a date, so that equal records make an equal file."""
    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in records)
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))


if __name__ == "__main__":
    main()
