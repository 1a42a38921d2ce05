"""A scene: a small run as its records would hold it, clean at first, in which a test makes one fault.

Comparisons, facts and verdicts are made by the real code; only the answers, grades and margins are written by hand. A
token is a character (its id is the code point), which keeps answers readable.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evals.align import common_prefix
from evals.diff import compare
from evals.types import (
    Answer,
    Arm,
    CaseGrade,
    Grade,
    Manifest,
    Margin,
    Outcome,
    RunEnd,
    SandboxReport,
)
from gate.evidence import RunEvidence
from gate.gathering import collect
from gate.policy import Policy, load_policy
from gate.types import Finding, Verdict
from gate.verdict import decide
from tasks.types import Case, Judge, Kind, Prompt, Task

STOP, CONTROL = 2, 3
NOW = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
TEXT = (
    "def parse(text):\n    rows, field = [], ''\n    for mark in text:\n        if mark == ',':\n"
    "            rows.append(field)\n            field = ''\n        else:\n            field += mark\n"
    "    return rows\n"
)


class Characters:
    """A tokenizer whose tokens are characters."""

    stop_ids = frozenset({STOP})
    control_ids = frozenset({STOP, CONTROL})

    def text(self, token: int, /) -> str:
        return {STOP: "<|im_end|>", CONTROL: "<|im_start|>"}.get(token, chr(token))

    def token_bytes(self, token: int, /) -> bytes:
        return b"" if token in (STOP, CONTROL) else chr(token).encode()


def ids_of(text: str) -> tuple[int, ...]:
    return (*map(ord, text), STOP)


class Scene:
    """One task, four prompts; plain twice, mtp@1 twice; every answer identical, every case passed."""

    def __init__(self, judge: Judge = "function", kind: Kind = "code") -> None:
        common: dict[str, Any] = {"engine": "genai", "device": "CPU", "target_digest": "t" * 64}
        plain = Arm(name="plain", method="plain", k=0, head_digest=None, **common)
        mtp = Arm(name="mtp@1", method="mtp", k=1, head_digest="h" * 64, **common)
        self.arms: dict[str, Arm] = {"plain": plain, "mtp@1": mtp}
        self.repeats = {"plain": 2, "mtp@1": 2}
        self.tasks: dict[str, Task] = {}
        self.answers_by: dict[tuple[str, str, str, int], Answer] = {}
        self.probes: list[Answer] = []
        self.grades_by: dict[tuple[str, str, str], Grade] = {}
        self.margin_list: list[Margin] = []
        self.unanswered_list: list[Answer] = []
        self.environment: dict[str, Any] = {}
        self.sandbox: SandboxReport | None = SandboxReport(name="bubblewrap", trusted=True)
        self.end: RunEnd | None = RunEnd(
            complete=True, reason="", model_digest_after="d" * 64, wall_s=1, engine_s=1
        )
        self.add_task("csv", judge=judge, kind=kind)

    def add_task(
        self,
        name: str,
        *,
        judge: Judge = "function",
        kind: Kind = "code",
        prompts: Iterable[str] = ("w1", "w2", "w3", "w4"),
        builtin: bool = False,
    ) -> None:
        self.tasks[name] = Task(
            name=name,
            title=name,
            summary="",
            kind=kind,
            judge=judge,
            language="python",
            entry="parse",
            max_new_tokens=400,
            prompts=tuple(Prompt(id=p, text=p) for p in prompts),
            cases=tuple(Case(name=c) for c in ("one", "two", "three")),
            gold="gold.py",
            mutants=(),
            variants=None,
            digest="0" * 64,
            path=Path("/nowhere"),
            builtin=builtin,
        )
        for arm in self.arms.values():
            self._fill(arm, name)

    def add_arm(self, name: str, method: Any, k: int, repeats: int = 1, **fields: Any) -> None:
        """An arm of the same target; a control arm accepts nothing."""
        self.arms[name] = msgspec.structs.replace(self.arms["mtp@1"], name=name, method=method, k=k, **fields)
        self.repeats[name] = repeats
        for task in self.tasks:
            self._fill(self.arms[name], task)

    def _fill(self, arm: Arm, task: str) -> None:
        for prompt in self.tasks[task].prompts:
            for repeat in range(self.repeats[arm.name]):
                self.answers_by[arm.name, task, prompt.id, repeat] = Answer(
                    arm=arm.name,
                    task=task,
                    prompt=prompt.id,
                    repeat=repeat,
                    prompt_sha256=f"{task}/{prompt.id}",
                    prompt_tokens=40,
                    max_new_tokens=400,
                    ids=ids_of(TEXT),
                    text=TEXT,
                    streamed=TEXT,
                    finish="stop",
                    accepted={"plain": None, "control": 0}.get(arm.method, 90),
                    drafted=None if arm.method == "plain" else 110,
                    ttft_s=0.1,
                    decode_s=2.0 if arm.method == "plain" else 1.5,
                    order=len(self.answers_by),
                )
            self.grade(prompt.id, {}, arm=arm.name, task=task)

    def change(
        self, prompt: str, *, arm: str = "mtp@1", task: str = "csv", repeat: int | None = None, **fields: Any
    ) -> None:
        """Change an answer in all its repeats, or in one. `text` alone changes ids and stream with it."""
        if "text" in fields:
            fields = {"ids": ids_of(fields["text"]), "streamed": fields["text"], **fields}
        for key, answer in self.answers_by.items():
            if key[:3] == (arm, task, prompt) and repeat in (None, key[3]):
                self.answers_by[key] = msgspec.structs.replace(answer, **fields)

    def change_all(self, *, arm: str = "mtp@1", task: str = "csv", **fields: Any) -> None:
        for prompt in self.tasks[task].prompts:
            self.change(prompt.id, arm=arm, task=task, **fields)

    def grade(
        self, prompt: str, outcomes: Mapping[str, Outcome], *, arm: str = "mtp@1", task: str = "csv"
    ) -> None:
        """Grade an answer: every case passed but those named."""
        cases = tuple(
            CaseGrade(case=c.name, outcome=outcomes.get(c.name, "pass")) for c in self.tasks[task].cases
        )
        self.grades_by[arm, task, prompt] = Grade(arm=arm, task=task, prompt=prompt, repeat=0, cases=cases)

    def diverge(self, prompt: str, *, arm: str = "mtp@1", task: str = "csv") -> None:
        """Have the arm's answer be another text from the middle on, unlike plain's."""
        self.change(
            prompt,
            arm=arm,
            task=task,
            text=TEXT[:40] + "while True:\n  take(text.pop())\n  if not text:\n  break\n",
        )

    def margin(self, prompt: str, *, arm: str = "mtp@1", **fields: Any) -> None:
        """A margin on csv where the arm's answer parts from plain's: by default a reproduced near-tie."""
        plain, other = (self.answers_by[name, "csv", prompt, 0] for name in ("plain", arm))
        known: dict[str, Any] = {
            "token_index": common_prefix(plain.ids, other.ids),
            "rank": 2,
            "gap": 0.05,
            "gap_at_verify_width": -0.01,
            "movement": 0.06,
            "noise": {"p50": 0.03, "p90": 0.06, "p99": 0.1, "max": 0.125},
            "source": "paged",
            "reproduced": True,
        }
        self.margin_list.append(Margin(arm=arm, task="csv", prompt=prompt, repeat=0, **{**known, **fields}))

    def probe(self, prompt: str, kind: Any, *, arm: str = "mtp@1", **fields: Any) -> None:
        """Ask a prompt again: in another session, or after a load."""
        answer = self.answers_by[arm, "csv", prompt, 0]
        self.probes.append(msgspec.structs.replace(answer, probe=kind, **{"session": 1, **fields}))

    # what gate.evidence.Records asks for
    @property
    def manifest(self) -> Manifest:
        return Manifest(
            schema=1,
            tool_version="0.1.0",
            created="2026-11-30T11:00:00Z",
            model="sample",
            model_digest_before="d" * 64,
            arms=tuple(self.arms.values()),
            tasks={name: task.digest for name, task in self.tasks.items()},
            prompts={name: tuple(p.id for p in task.prompts) for name, task in self.tasks.items()},
            repeats=self.repeats,
            policy_digest="p" * 64,
            environment=self.environment,
        )

    def answers(self) -> Iterable[Answer]:
        return iter([*self.answers_by.values(), *self.probes])

    def grades(self) -> Iterable[Grade]:
        return iter(self.grades_by.values())

    def margins(self) -> Iterable[Margin]:
        return iter(self.margin_list)

    def unanswered(self) -> Iterable[Answer]:
        return iter(self.unanswered_list)

    def run(self) -> RunEvidence:
        return collect(self, self.tasks, lambda base, other: compare(base, other, Characters()))

    def verdict(self, policy: Policy | None = None, now: dt.datetime = NOW) -> Verdict:
        return decide(self.run(), policy or load_policy(None), now=now)

    def codes(self, policy: Policy | None = None) -> dict[str, str]:
        """Reason code to severity, of everything found."""
        return {f.code: f.severity for f in self.verdict(policy).findings}

    def found(self, code: str, policy: Policy | None = None) -> Finding:
        """The one finding of a code."""
        (only,) = [f for f in self.verdict(policy).findings if f.code == code]
        return only


@pytest.fixture
def make_scene() -> Callable[..., Scene]:
    """make_scene(judge=…, kind=…) -> a clean Scene"""
    return Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def make_policy(tmp_path: Path) -> Callable[[str], Policy]:
    """make_policy(TOML laid over the default) -> Policy"""

    def make(text: str) -> Policy:
        path = tmp_path / "gate.toml"
        path.write_text(text, encoding="utf-8")
        return load_policy(path)

    return make
