"""Threat: a task with checks of its own lets a forgery pass, takes an outage for a score, or runs the wrong check.

What goes between the two sandboxes is tested in tests/sandbox/test_relay.py, HumanEval as a whole in test_humaneval.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.grade import Grader, grade_answer
from evals.types import Answer
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Program, Sandbox, SandboxUnavailable
from tasks.folder import load_task
from tasks.types import Task

FILES = {
    "task.toml": 'schema = 1\nname = "square"\ntitle = "Square"\nsummary = "Square."\nkind = "code"\njudge = "checks"\n'
    'language = "python"\nentry = "f"\nmax_new_tokens = 9\nchecks = "checks.py"\ngold = "gold.py"\n',
    "prompts.toml": '[[prompt]]\nid = "p1"\ntext = "f"\n',
    "cases.jsonl": '{"name": "two", "check": "check_two"}\n{"name": "three", "check": "check_three"}\n',
    "checks.py": "def check(c): assert 0\n"
    "def check_two(c):\n    assert c(2) == 4\ndef check_three(c):\n    assert c(3) == 9\n",
    "gold.py": "def f(x):\n    return x * x\n",
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Bubblewrap()
    yield made
    made.close()


@pytest.fixture
def task(tmp_path: Path) -> Task:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return load_task(tmp_path)


def outcomes(task: Task, program: str, sandbox: Any) -> list[str]:
    answer = Answer("plain", "square", "p1", 0, "", 1, 9, text=f"```python\n{program}\n```\n", finish="stop")
    grade = grade_answer(task, answer, sandbox)
    assert [c.case for c in grade.cases] == ["two", "three"]
    return [c.outcome for c in grade.cases]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("def f(x):\n    return x * x", ["pass", "pass"]),
        ("def f(x):\n    return x + x", ["pass", "fail"]),
        ("def f(x):\n    return None", ["fail", "fail"]),
        ("def f(x):\n    raise KeyError", ["fail", "fail"]),
        ("def f(x:", ["fail", "fail"]),
        ("import os\ndef f(x):\n    return os._exit(0) if x == 2 else 9", ["crash", "pass"]),
        ("def f(x):\n    while x == 3: pass\n    return 4", ["pass", "timeout"]),
        (
            "class E(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef f(x): return E(0)",
            ["fail"] * 2,
        ),
        (
            "import sys\ndef f(x):\n    sys.modules['__main__'].check_two = print\n    return 0",
            ["fail", "fail"],
        ),
        ("def f(x):\n    raise SystemExit(0)", ["fail", "fail"]),
    ],
)
def test_each_case_is_its_own_check(task: Task, sandbox: Sandbox, program: str, expected: list[str]) -> None:
    assert outcomes(task, program, sandbox) == expected


def test_a_check_that_is_not_there_says_nothing_of_the_program(task: Task, sandbox: Sandbox) -> None:
    (task.path / "checks.py").write_text("def check_two(c):\n    assert c(2) == 4\n")
    assert outcomes(task, FILES["gold.py"], sandbox) == ["pass", "infra"]


class Down:
    """A sandbox that starts so many programs and then no more."""

    name = "down"

    def __init__(self, inner: Sandbox, starts: int):
        self.inner, self.starts = inner, starts

    def open(self, program: Program, limits: Limits) -> Any:
        self.starts -= 1
        if self.starts < 0:
            raise SandboxUnavailable("down; start it")
        return self.inner.open(program, limits)


@pytest.mark.parametrize("starts", [0, 1])
def test_an_outage_is_infra(task: Task, sandbox: Sandbox, starts: int) -> None:
    assert outcomes(task, FILES["gold.py"], Down(sandbox, starts)) == ["infra", "infra"]


def test_checks_that_cannot_be_read_any_more_are_no_score(task: Task, sandbox: Sandbox) -> None:
    (task.path / "checks.py").unlink()
    answer = Answer(
        "plain", "square", "p1", 0, "", 1, 9, text=f"```python\n{FILES['gold.py']}```\n", finish="stop"
    )
    with Grader([task], sandbox) as grader:
        grade = grader.submit(answer).result()
    assert {c.outcome for c in grade.cases} == {"infra"} and "checks.py" in grade.cases[0].observed
