"""A run made by hand for the reports' tests: four tasks, three arms, divergences of several sorts.

Nothing here stands for a real model; the records' shapes are the real types.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evals.types import (
    Answer,
    Arm,
    CaseGrade,
    Comparison,
    Divergence,
    Failure,
    Grade,
    Manifest,
    Margin,
    RunEnd,
    SandboxReport,
)
from gate.types import ArmSummary, Finding, Score, TaskVerdict, Verdict
from reports.build import build_view
from reports.view import View
from tasks.types import Case, Prompt, Task

BASE_PROGRAM = '''Here is the function.

```python
def parse_csv(text):
    """Parse RFC 4180 text into rows of fields."""
    rows, row, field = [], [], ""
    quoted = False
    i = 0
    while i < len(text):
        c = text[i]
        if quoted:
            if c == '"' and text[i + 1:i + 2] == '"':
                field += '"'
                i += 1
            elif c == '"':
                quoted = False
            else:
                field += c
        elif c == '"':
            quoted = True
        elif c == ",":
            row.append(field)
            field = ""
        elif c in "\\r\\n":
            if text[i:i + 2] == "\\r\\n":
                i += 1
            rows.append(row + [field])
            row, field = [], ""
        else:
            field += c
        i += 1
    if field or row:
        rows.append(row + [field])
    return rows
```
'''
OTHER_PROGRAM = BASE_PROGRAM.replace(
    """            if c == '"' and text[i + 1:i + 2] == '"':
                field += '"'
                i += 1
            elif c == '"':
""",
    """            if c == '"':
""",
)
PROSE = "The lighthouse keeper counted the waves. " * 9


class Run(msgspec.Struct):
    """The records of a run, as `build_view` takes them."""

    verdict: Verdict
    manifest: Manifest
    answers: list[Answer]
    comparisons: list[Comparison]
    margins: list[Margin]
    grades: list[Grade]
    tasks: dict[str, Task]

    def view(self, **more: Any) -> View:
        return build_view(
            self.verdict,
            self.manifest,
            iter(self.answers),
            self.comparisons,
            self.margins,
            self.grades,
            self.tasks,
            **more,
        )


def _arms() -> tuple[Arm, ...]:
    def arm(name: str, method: Any, k: int, head: str | None) -> Arm:
        return Arm(
            name=name,
            method=method,
            k=k,
            engine="openvino-genai",
            device="CPU",
            target_digest="a" * 64,
            head_digest=head,
            properties={"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "u8"},
            scheduler={"cache_size": 1},
            versions={"openvino-genai": "2026.4.1"},
        )

    return (
        arm("plain", "plain", 0, None),
        arm("mtp@1", "mtp", 1, "b" * 64),
        arm("control@1", "control", 1, "c" * 64),
    )


CASES = {
    "csv": (
        ("crlf", "Rows end in CRLF.", ["a,b\r\nc,d\r\n"], [["a", "b"], ["c", "d"]]),
        ("bare-lf", "A bare LF ends a row too.", ["a\nb\n"], [["a"], ["b"]]),
        ("doubled-quote", "A doubled quote is one quote.", ['"say ""hi"""\r\n'], [['say "hi"']]),
        ("embedded-newline", "A quoted field may hold a newline.", ['"a\nb",c\r\n'], [["a\nb", "c"]]),
        ("no-trimming", "Blanks are part of a field.", [" a , b \r\n"], [[" a ", " b "]]),
    ),
    "prose": (
        ("length", "At least 40 words.", None, None),
        ("ends", "It ends with a full stop.", None, None),
    ),
}


def _task(name: str, title: str, kind: Any, judge: Any, prompts: int) -> Task:
    if judge == "function":
        cases = tuple(Case(name=n, why=w, args=a, returns=r) for n, w, a, r in CASES[name])
    else:
        cases = tuple(Case(name=n, why=w, constraint="words", min=40) for n, w, _, _ in CASES["prose"])
    return Task(
        name=name,
        title=title,
        summary=f"What {title.lower()} asks for, in one sentence.",
        kind=kind,
        judge=judge,
        language="python",
        entry="parse_csv" if judge == "function" else None,
        max_new_tokens=512,
        prompts=tuple(Prompt(f"w{i + 1}", f"Wording {i + 1} of {title}.") for i in range(prompts)),
        cases=cases,
        gold="gold/answer.py",
        mutants=(),
        variants=None,
        digest="d" * 64,
        path=Path("/nowhere") / name,
        builtin=True,
    )


def _answer(arm: str, task: str, prompt: str, text: str, repeat: int = 0, **more: Any) -> Answer:
    fields: dict[str, Any] = {
        "arm": arm,
        "task": task,
        "prompt": prompt,
        "repeat": repeat,
        "prompt_sha256": "e" * 64,
        "prompt_tokens": 40,
        "max_new_tokens": 512,
        "ids": tuple(range(len(text) // 4)),
        "text": text,
        "steps": (1,) * (len(text) // 4),
        "finish": "stop",
        "ttft_s": 0.08,
        "decode_s": 2.0,
    }
    if arm != "plain":
        drafted = len(text) // 8
        fields |= {"drafted": drafted, "accepted": int(drafted * 0.9) if arm.startswith("mtp") else 0}
    return Answer(**(fields | more))


def _divergence(base: str, other: str) -> Divergence:
    at = next(i for i, (a, b) in enumerate(zip(base, other, strict=False)) if a != b)
    return Divergence(
        token_index=at // 4,
        byte_offset=len(base[:at].encode()),
        base_token=11,
        other_token=12,
        base_token_text=base[at : at + 4],
        other_token_text=other[at : at + 3],
        before=base[max(0, at - 40) : at],
        base_after=base[at : at + 40],
        other_after=other[at : at + 40],
    )


def _grade(arm: str, task: Task, prompt: str, failing: dict[str, CaseGrade]) -> Grade:
    cases = tuple(failing.get(c.name, CaseGrade(c.name, "pass")) for c in task.cases)
    return Grade(arm, task.name, prompt, 0, cases, program_sha256="f" * 64)


def _run() -> Run:
    csv = _task("csv", "RFC 4180 CSV", "code", "function", 4)
    prose = _task("prose", "A short story", "prose", "constraints", 4)
    run = Run(None, None, [], [], [], [], {"csv": csv, "prose": prose})  # type: ignore[arg-type]
    lost = {
        "doubled-quote": CaseGrade("doubled-quote", "fail", "[['say hi']]", "[['say \"hi\"']]"),
        "embedded-newline": CaseGrade("embedded-newline", "crash", "IndexError: string index out of range"),
    }
    for task in (csv, prose):
        for prompt in task.prompts:
            base = BASE_PROGRAM if task is csv else PROSE + f"({prompt.id})"
            for arm in _arms():
                text = base
                if arm.name == "mtp@1" and task is csv and prompt.id == "w2":
                    text = OTHER_PROGRAM
                if arm.name != "plain" and task is prose and prompt.id in ("w1", "w3"):
                    text = base.replace("counted the waves", "counted the stars", 1)
                failed = arm.name == "control@1" and task is prose and prompt.id == "w4"
                for repeat in range(2 if arm.name == "plain" else 1):
                    more: dict[str, Any] = {}
                    if failed:
                        text = ""
                        more = {"failure": Failure("crash", "the engine ended in mid-decode", signal=11)}
                    run.answers.append(_answer(arm.name, task.name, prompt.id, text, repeat, **more))
                run.grades.append(_grade(arm.name, task, prompt.id, lost if text is OTHER_PROGRAM else {}))
                if arm.name == "plain":
                    continue
                same = text == base
                found = None if same or failed else _divergence(base, text)
                run.comparisons.append(Comparison(arm.name, "plain", task.name, prompt.id, 0, same, found))
                if found and arm.name == "mtp@1":
                    noise = {"p50": 0.004, "p90": 0.021, "p99": 0.06, "max": 0.14}
                    gap = 0.018 if task is prose else 0.31
                    index = found.token_index or 0
                    run.margins.append(
                        Margin(
                            "mtp@1",
                            task.name,
                            prompt.id,
                            0,
                            index,
                            2,
                            gap,
                            gap / 2,
                            0.011,
                            noise,
                            "paged",
                            True,
                        )
                    )
    run.manifest = Manifest(
        schema=1,
        tool_version="0.1.0",
        created="2026-11-30T16:00:00Z",
        model="/home/someone/models/qwen3.5-sample-int4",
        model_digest_before="a" * 64,
        arms=_arms(),
        tasks={"csv": "d" * 64, "prose": "d" * 64},
        prompts={t.name: tuple(p.id for p in t.prompts) for t in (csv, prose)},
        repeats={"plain": 2, "mtp@1": 1, "control@1": 1},
        policy_digest="9" * 64,
        environment={"cpu": "Some CPU @ 2.0 GHz", "HF_TOKEN": "hf_abcdefghijklmnopqrstuv", "cores": 2},
    )
    run.verdict = _verdict()
    return run


def _verdict() -> Verdict:
    def arms(passed: int, arm_passed: int, judged: int, identical: int) -> tuple[ArmSummary, ...]:
        return (
            ArmSummary("plain", 8, 8, None, Score(passed, judged), None, None, None, 40.25, 0.08),
            ArmSummary("mtp@1", 4, 4, identical, Score(arm_passed, judged), 424, 471, 424 / 471, 52.9, 0.09),
            ArmSummary("control@1", 4, 4, 3, Score(passed, judged), 0, 471, 0.0, 33.0, 0.09),
        )

    csv = TaskVerdict(
        "csv", "mtp@1", "no_worse", "do_not_serve", ("case-lost", "new-crash"),
        "Two cases that plain passes are lost, one by a crash.", 4, 3,
        (("w2", "doubled-quote"), ("w2", "embedded-newline")), (), arms(20, 18, 20, 3), 1.31,
    )  # fmt: skip
    prose = TaskVerdict(
        "prose", "mtp@1", "no_worse", "serve", ("near-tie",),
        "Two answers differ, each at a near-tie, and no case is lost.", 4, 2, (), (), arms(8, 8, 8, 2), 1.12,
    )  # fmt: skip
    findings = (
        Finding("case-lost", "block", "csv w2: plain passes doubled-quote and embedded-newline, mtp@1 does not.",
                "csv", "mtp@1", "w2", {"lost": 2, "observed": "[['say hi']]"}),
        Finding("new-crash", "block", "csv w2: embedded-newline crashes under mtp@1 (IndexError), not under plain.",
                "csv", "mtp@1", "w2", {"case": "embedded-newline"}),
        Finding("near-tie", "note", "prose w1: the arms part at a near-tie (gap 0.018 nats, width noise p99 0.06).",
                "prose", "mtp@1", "w1", {"gap": 0.018, "noise": {"p99": 0.06}, "token": " stars"}),
    )  # fmt: skip
    return Verdict(
        schema=1,
        tool_version="0.1.0",
        created="2026-11-30T16:20:00Z",
        decision="do_not_serve",
        sentence="On csv, mtp@1 writes worse programs than plain: 2 cases lost, 1 of them by a crash.",
        what_to_do="Serve without the head, or requantise it (int8) and run the gate again.",
        reasons=("case-lost", "new-crash"),
        worth_it=True,
        k=(1,),
        model="/home/someone/models/qwen3.5-sample-int4",
        target_digest="a" * 64,
        head_digests={"mtp@1": "b" * 64},
        policy_digest="9" * 64,
        manifest_identity="8" * 64,
        tasks=(csv, prose),
        findings=findings,
        caveats=("Built-in tasks stand for themselves, not for your work: add your own with --tasks DIR.",),
    )


@pytest.fixture
def make_run() -> Callable[[], Run]:
    return _run


@pytest.fixture
def run(make_run: Callable[[], Run]) -> Run:
    return make_run()


@pytest.fixture
def end() -> RunEnd:
    return RunEnd(True, "complete", "a" * 64, 48.2, 41.0)


@pytest.fixture
def sandbox() -> SandboxReport:
    return SandboxReport("bubblewrap", True, {"network": "none", "uid": "65534"})
