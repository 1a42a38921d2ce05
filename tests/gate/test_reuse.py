"""The threat: a kept grade passed for another program's, another harness's, another sandbox's, or an outage's.

Programs run in the real sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gate.reuse
from evals.cache import Cache
from evals.grade import Grader
from evals.types import Answer, Grade, SandboxReport
from gate.reuse import KnownGrades
from sandbox import interpreters
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Program, Sandbox, SandboxUnavailable
from tasks.folder import builtin_tasks

CSV = next(t for t in builtin_tasks() if t.name == "csv")
RIGHT = f"```python\n{(CSV.path / str(CSV.gold)).read_text()}```\n"
REPORT = SandboxReport("bubblewrap", True, {"version": "1"})


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    made = Bubblewrap()
    yield made
    made.close()


class Counting:
    """Counts the programs that the real sandbox is asked to start; the first `down` of them it refuses."""

    def __init__(self, inner: Sandbox, down: int = 0):
        self.inner, self.name, self.started, self.down = inner, inner.name, 0, down

    def open(self, program: Program, limits: Limits) -> Any:
        self.started += 1
        if self.started <= self.down:
            raise SandboxUnavailable("down for a moment")
        return self.inner.open(program, limits)


def graded(
    box: Sandbox, path: Path, said: list[str], *, text: str = RIGHT, report: Any = REPORT, **more: Any
) -> tuple[Grade, int]:
    """The grade of an answer by a grader of its own with this cache, and how many programs were started for it."""
    counting: Any = Counting(box, more.pop("down", 0))
    task = msgspec.structs.replace(CSV, **more)
    known = KnownGrades(Cache(path, say=said.append), report)
    answer = Answer("plain", "csv", "p", 0, "", 1, 9, text=text, finish="stop")
    with Grader([task], counting, known=known) as grader:
        return grader.submit(answer).result(), counting.started


def test_a_program_that_was_run_is_not_run_again(box: Sandbox, tmp_path: Path) -> None:
    first, started = graded(box, tmp_path, [])
    again, more = graded(box, tmp_path, [], text=f"Other words.\n{RIGHT}")
    assert (started, more) == (1, 0)
    assert again == first and first.passed == len(CSV.cases)


def test_what_may_judge_otherwise_is_run_again(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded(box, tmp_path, [])
    for change in (
        {"text": "```python\ndef parse_csv(text):\n    return []\n```"},
        {"digest": "0" * 64},
        {"report": SandboxReport("bubblewrap", True, {"version": "2"})},
    ):
        assert graded(box, tmp_path, [], **change)[1] == 1, change
    monkeypatch.setattr(gate.reuse, "identity", lambda language: f"another {language}")
    assert graded(box, tmp_path, [])[1] == 1


def test_an_interpreter_is_known_by_its_file() -> None:
    path, size, _ = interpreters.identity("python").split()
    assert Path(path).resolve() == Path(path) and int(size) == Path(path).stat().st_size


def test_an_outage_is_not_kept(box: Sandbox, tmp_path: Path) -> None:
    first, _ = graded(box, tmp_path, [], down=9)
    second, started = graded(box, tmp_path, [])
    assert first.infra and started == 1 and not second.infra


def test_a_grade_without_the_task_s_cases_is_not_believed(box: Sandbox, tmp_path: Path) -> None:
    graded(box, tmp_path, [], cases=CSV.cases[1:])
    grade, started = graded(box, tmp_path, [])
    assert started == 1 and len(grade.cases) == len(CSV.cases)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b.replace(b'"fail"', b'"pass"'), lambda b: b""],
    ids=["truncated", "poisoned", "empty"],
)
def test_a_damaged_entry_is_said_and_made_again(box: Sandbox, tmp_path: Path, damage: Any) -> None:
    wrong = "```python\ndef parse_csv(text):\n    return []\n```"
    before, _ = graded(box, tmp_path, [], text=wrong)
    (entry,) = (file for file in tmp_path.rglob("*") if file.is_file())
    entry.write_bytes(damage(entry.read_bytes()))
    said: list[str] = []
    grade, started = graded(box, tmp_path, said, text=wrong)
    assert started == 1 and grade == before
    assert len(said) == 1 and str(entry) in said[0] and "made again" in said[0]
    assert graded(box, tmp_path, [], text=wrong)[1] == 0
