"""What users reported (tests/fixtures, from ../shared/cases/reports.jsonl), as situations beside those made here.

The ids are a report's own; everything that it doesn't tell (grades, counters, a second plain answer) is sound, so that
the report's fault is the only one. They have a vocabulary of their own, and are in half "a".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evals.align import common_prefix
from evals.types import Answer, Arm, CaseGrade, Finish, Grade, Manifest, Margin, RunEnd
from tasks.types import Task
from tests.faults.situation import DIGEST, Run, Situation

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLAIN = Arm("plain", "plain", 0, "report", "CPU", DIGEST, None)


class Vocabulary(msgspec.Struct, frozen=True):
    """A report's own ids as text: its vocabulary, else the character with that number."""

    stop_ids: frozenset[int]
    words: dict[int, str] = {}

    @property
    def control_ids(self) -> frozenset[int]:
        return self.stop_ids

    def text(self, token: int, /) -> str:
        return "" if token in self.stop_ids else self.words.get(token, chr(token))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.text(i) for i in ids)


def reports(tasks: dict[str, Task]) -> Iterator[Situation]:
    """Every report as a situation or several."""
    count = tasks["count"]
    a01 = _read("A01")
    yield _situation(
        "A01", {"skipped-or-repeated-tokens"}, count, a01["eos"], [a01["plain_ids"]] * 2, [a01["spec_ids"]],
        gap=a01["plain_top1_minus_top2_at_divergence"], rank=a01["spec_token_rank_in_plain"], noise=0.55,
    )  # fmt: skip
    yield _situation(
        "A01 unmeasured", {"skipped-or-repeated-tokens"}, count, a01["eos"], [a01["plain_ids"]] * 2, [a01["spec_ids"]]
    )  # fmt: skip
    a02 = _read("A02")
    yield _situation(
        "A02", {"stream-mismatch"}, count, -1, [a02["plain_ids"]] * 2, [a02["spec_ids"]],
        words={int(k): v for k, v in a02["vocab"].items()}, streamed="".join(a02["spec_stream_chunks"]),
    )  # fmt: skip
    a03 = _read("A03")
    for k in (1, 2, 3):
        yield _situation(
            f"A03 K={k}", set(), count, 2, [a03["plain_ids"]] * 2, [a03["runs"][f"K{k}"]] * 2, k=k,
            gap=a03["plain_margin_at_divergence"], rank=a03["spec_token_rank_in_plain"], noise=a03["width_noise_p99"],
        )  # fmt: skip
    a08 = _read("A08")
    yield _situation(
        "A08", {"post-stop-leak"}, count, a08["stop_id"], [a08["plain"]["ids"]] * 2, [a08["spec"]["ids"]],
        budget=a08["max_new_tokens"], finish=a08["spec"]["finish"],
    )  # fmt: skip
    a16 = _read("A16")
    yield _situation("A16", {"plain-unrepeatable"}, count, 2, a16["plain_runs"], a16["spec_runs"])
    right = {
        "never armed": {"not-exercised"}, "dead head": {"dead-head"}, "undersampled": {"too-few-drafts"},
        "late collapse": {"acceptance-collapse"}, "too good": {"acceptance-not-credible"}, "deep K": set(),
        "counter bug": {"counter-fault"},
    }  # fmt: skip
    for case in _read("B08")["cases"]:
        yield _acceptance(case, right[case["name"]], count)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())["repro"]
    return found


def _acceptance(case: dict[str, Any], label: set[str], task: Task) -> Situation:
    """B08: prompts with these counters, and text in which nothing recurs (unless the report says so)."""
    windows = case.get("windows") or [[case["accepted"], case["drafted"]]]
    tokens = max(drafted for _, drafted in windows) + 20
    ids = [(i * 7919) % 30_000 + 1000 for i in range(tokens)]
    if "repeated_4gram_share" in case:
        ids = ids[: round(tokens * (1 - case["repeated_4gram_share"]))] * 9
    return _situation(
        f"B08 {case['name']}",
        label,
        task,
        2,
        [[*ids, 2]] * 2,
        [[*ids, 2]],
        counters=windows,
        k=case.get("K", 1),
    )


def _situation(
    name: str,
    label: set[str],
    task: Task,
    stop: int,
    plain: Sequence[Sequence[int]],
    spec: Sequence[Sequence[int]],
    *,
    k: int = 1,
    words: dict[int, str] | None = None,
    streamed: str | None = None,
    budget: int = 9999,
    finish: Finish = "stop",
    gap: float | None = None,
    rank: int = 2,
    noise: float = 0.1,
    counters: Sequence[Sequence[int | None]] = ((None, None),),
) -> Situation:
    tokens = Vocabulary(frozenset({stop}), words or {})
    arm = Arm(f"mtp@{k}", "mtp", k, "report", "CPU", DIGEST, DIGEST)
    prompts = tuple(f"w{i}" for i in range(len(counters)))

    def answer(of: Arm, prompt: int, repeat: int, ids: Sequence[int]) -> Answer:
        text = tokens.decode(ids)
        spec_one = of is arm
        return Answer(
            arm=of.name, task=task.name, prompt=prompts[prompt], repeat=repeat, prompt_sha256=DIGEST, prompt_tokens=9,
            max_new_tokens=budget, ids=tuple(ids), text=text, order=prompt,
            streamed=streamed if spec_one and streamed is not None else text,
            finish=finish if spec_one else "stop",
            steps=(1, 2, *(1 for _ in ids[3:])) if spec_one else (),
            accepted=counters[prompt][0] if spec_one else None,
            drafted=counters[prompt][1] if spec_one else None,
        )  # fmt: skip

    answers = [
        answer(of, prompt, repeat, ids)
        for prompt in range(len(prompts))
        for of, runs in ((PLAIN, plain), (arm, spec))
        for repeat, ids in enumerate(runs)
    ]
    grades = tuple(
        Grade(of.name, task.name, prompt, 0, tuple(CaseGrade(c.name, "pass") for c in task.cases))
        for of in (PLAIN, arm)
        for prompt in prompts
    )
    margins: tuple[Margin, ...] = ()
    if gap is not None:
        place = common_prefix(plain[0], spec[0])
        margins = (
            Margin(
                arm.name,
                task.name,
                "w0",
                0,
                place,
                rank,
                gap,
                gap,
                noise,
                {"p99": noise},
                "paged",
                True,
                gap,
                place,
                rank,
            ),
        )
    manifest = Manifest(
        1, "0", "2026-11-30", "report", DIGEST, (PLAIN, arm), {task.name: task.digest}, {task.name: prompts},
        {"plain": len(plain), arm.name: len(spec)}, "",
    )  # fmt: skip
    run = Run(manifest, tuple(answers), grades, margins, None, RunEnd(True, "", DIGEST, 1.0, 1.0))
    return Situation(name, f"report {name.split()[0]}" if label else "", frozenset(label), "a", run, tokens)
