"""Threat: a grade that isn't the program's: forged by it, given by an outage, or taken from it by a busy machine.

Programs run in the real sandbox. A fake one is used only to make an outage or a slow clock.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evals.grade import Grader, grade_answer
from evals.judge import judge
from evals.types import Answer, CaseGrade, Failure, Grade
from evals.values import equal, show
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Outcome, Program, Sandbox, SandboxUnavailable, Status
from sandbox.function_mode import CallOutcome, CallResult
from sandbox.pool import Pool
from tasks.folder import builtin_tasks
from tasks.types import Case, Task

CSV = next(t for t in builtin_tasks() if t.name == "csv")
COUNT = next(t for t in builtin_tasks() if t.name == "count")
D05 = json.loads((Path(__file__).parents[1] / "fixtures/D05.json").read_text())["repro"]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Bubblewrap()
    yield made
    made.close()


def task(*cases: Case, **fields: Any) -> Task:
    given = {
        "entry": "f",
        "cases": cases,
        "digest": repr(cases) + repr(fields),
        "language": "python",
        **fields,
    }
    return msgspec.structs.replace(CSV, **given)


def answer(text: str, name: str = "csv", **fields: Any) -> Answer:
    given: dict[str, Any] = {
        "arm": "plain",
        "prompt": "p1",
        "repeat": 0,
        "prompt_sha256": "",
        "prompt_tokens": 1,
    }
    return Answer(**{**given, "task": name, "max_new_tokens": 99, "text": text, "finish": "stop", **fields})


def fenced(program: str) -> str:
    return f"Here:\n```python\n{program}```\n"


def outcomes(grade: Grade) -> list[str]:
    return [c.outcome for c in grade.cases]


def judged(task: Task, program: bytes, sandbox: Any) -> tuple[CaseGrade, ...]:
    if sandbox is None:
        return judge(task, program, None)
    with Pool(sandbox, 2) as pool:
        return judge(task, program, pool)


def graded(program: str, sandbox: Sandbox | None, *cases: Case, **fields: Any) -> list[str]:
    return [c.outcome for c in judged(task(*cases, **fields), program.encode(), sandbox)]


ONE = Case(name="one", args=[1], returns=1)
TWO = Case(name="two", args=[2], returns=4)
BAD = Case(name="bad", args=["x"], raises="ValueError")


def test_a_right_answer_passes_every_case_with_its_names_in_order(sandbox: Sandbox) -> None:
    gold = (CSV.path / CSV.gold).read_text()
    grade = grade_answer(CSV, answer(fenced(gold)), sandbox)
    assert [c.case for c in grade.cases] == [c.name for c in CSV.cases]
    assert set(outcomes(grade)) == {"pass"} and grade.passed == len(CSV.cases) and not grade.infra
    assert grade.program_sha256 and (grade.arm, grade.task, grade.prompt, grade.repeat) == (
        "plain",
        "csv",
        "p1",
        0,
    )


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("def f(x):\n    return int(x) ** 2", ["pass", "pass", "pass"]),
        ("def f(x):\n    return x", ["pass", "fail", "fail"]),
        ("def f(x):\n    raise ValueError", ["fail", "fail", "pass"]),
        ("def f(x):\n    raise UnicodeError", ["fail", "fail", "pass"]),
        ("def f(x):\n    return x / 0", ["crash", "crash", "crash"]),
        ("def f(x):\n    raise KeyError if x == 'x' else ValueError", ["fail", "fail", "crash"]),
        ("raise ValueError\ndef f(x): pass", ["crash", "crash", "crash"]),
        ("def f(x:", ["crash", "crash", "crash"]),
        ("def g(x): pass", ["crash", "crash", "crash"]),
        ("def f(x):\n    return (i for i in [1])", ["fail", "fail", "fail"]),
        ("import os\ndef f(x):\n    os._exit(0)", ["crash", "crash", "crash"]),
        (
            "class Y(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef f(x): return Y(1)",
            ["fail"] * 3,
        ),
        ("def f(x):\n    if x == 2:\n        while True: pass\n    return x", ["pass", "timeout", "fail"]),
        ("def f(x):\n    return 'x' * (4 << 20) if x == 2 else x", ["pass", "output_limit", "fail"]),
        ("def f(x):\n    return bytearray(1 << 40) if x == 2 else x", ["pass", "crash", "fail"]),
    ],
)
def test_function_mode(sandbox: Sandbox, program: str, expected: list[str]) -> None:
    assert graded(program, sandbox, ONE, TWO, BAD) == expected


def test_a_generator_is_no_type_error(sandbox: Sandbox) -> None:
    wants = Case(name="t", args=[1], raises="TypeError")
    assert graded("def f(x):\n    yield 1", sandbox, wants) == ["fail"]
    assert graded("def f(x):\n    raise TypeError", sandbox, wants) == ["pass"]


def test_an_exception_is_an_answer_only_where_the_task_expects_its_type(sandbox: Sandbox) -> None:
    assert graded("def f(x):\n    raise ValueError", sandbox, ONE, TWO) == ["crash", "crash"]


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("print(input()[::-1])", "pass"),
        ("print(input()[::-1]); print()", "fail"),
        ("import sys; sys.stdout.write(input()[::-1])", "fail"),
        ("print(input()[::-1]); raise SystemExit(3)", "crash"),
        ("print(input()[::-1]); 1 / 0", "crash"),
        ("print(input()[::-1], flush=True)\nimport os; os.kill(os.getpid(), 11)", "crash"),
        ("print('\\x00' * (4 << 20))", "output_limit"),
        ("while True: pass", "timeout"),
    ],
)
def test_program_mode(sandbox: Sandbox, program: str, outcome: str) -> None:
    case = Case(name="c", stdin="abc\n", stdout="cba\n")
    assert graded(program, sandbox, case, judge="program", entry=None) == [outcome]


def test_program_mode_starts_afresh_for_each_case(sandbox: Sandbox) -> None:
    program = "import os\nprint(os.path.exists('/tmp/x'))\nopen('/tmp/x', 'w').close()"
    cases = [Case(name=n, stdin="", stdout="False\n") for n in ("a", "b")]
    assert graded(program, sandbox, *cases, judge="program", entry=None) == ["pass", "pass"]


class Down:
    """A sandbox that can't be started."""

    name = "down"

    def run(self, program: Program, limits: Limits) -> Outcome:
        return Outcome(status=Status.INFRA, detail="cannot reach daemon; start it")

    def open(self, program: Program, limits: Limits) -> Any:
        raise SandboxUnavailable("cannot reach daemon; start it")


@pytest.mark.parametrize("judge_kind", ["function", "program"])
@pytest.mark.parametrize("down", [Down(), None])
def test_an_outage_is_infra_and_says_what_to_do(judge_kind: str, down: Any) -> None:
    cases = (ONE, TWO) if judge_kind == "function" else (Case(name="c", stdin="", stdout=""),)
    got = judged(
        task(*cases, judge=judge_kind, entry="f" if judge_kind == "function" else None),
        b"def f(x): pass",
        down,
    )
    assert len(got) == len(cases) and {c.outcome for c in got} == {"infra"}
    assert "start it" in got[0].observed or "gate doctor" in got[0].observed


def test_a_missing_interpreter_is_infra_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
) -> None:
    def missing(language: str) -> Any:
        raise SandboxUnavailable(f"expected an interpreter for {language}, found none; install lua5.4")

    monkeypatch.setattr("sandbox.interpreters.find", missing)
    got = judged(task(ONE, language="lua"), b"function f(x) return x end", sandbox)
    assert got[0].outcome == "infra" and "install lua5.4" in got[0].observed


@pytest.mark.parametrize(
    "row", D05["cases"], ids=lambda r: f"{len(r['raw']['tests'])} of 12, exit {r['raw'].get('exit')}"
)
def test_fewer_results_than_cases_never_pass(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """D05, told in the words of function mode: n results came back, and then the process ended as the row says."""
    raw = row["raw"]
    cases = [Case(name=f"c{i}", args=[i], returns=i) for i in range(D05["expected_checks"])]
    results = [CallResult(CallOutcome.RETURNED, value=i) for i in range(len(raw["tests"]))]
    if raw.get("exit") == 137:
        results += [CallResult(CallOutcome.KILLED, limit="memory_bytes", detail="over memory_bytes")] * (
            12 - len(results)
        )
    monkeypatch.setattr("sandbox.pool.run_function", lambda *_: results)
    got = {c.outcome for c in judged(task(*cases), b"", Down())}
    if row["expect"] == "pass":
        assert got == {"pass"}
    elif "killed" in row["expect"]:
        assert got == {"pass", "killed"}
    else:
        assert got == {"infra"}


def test_a_timeout_by_the_wall_clock_is_run_again_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = CallResult(CallOutcome.TIMEOUT, limit="wall_s")
    runs = iter([[timeout, timeout], [CallResult(CallOutcome.RETURNED, value=1), timeout]])
    monkeypatch.setattr("sandbox.pool.run_function", lambda *_: next(runs))
    assert [c.outcome for c in judged(task(ONE, TWO), b"", Down())] == ["pass", "timeout"]


@pytest.mark.parametrize("kind", ["crash", "hang", "error", "refused"])
def test_an_engines_failure_passes_nothing_and_is_named(kind: Any) -> None:
    failed = answer(fenced("def parse_csv(t): pass\n"), failure=Failure(kind=kind, message="signal 11"))
    for one in (CSV, COUNT):
        grade = grade_answer(one, msgspec.structs.replace(failed, task=one.name), Down())
        assert set(outcomes(grade)) == {"no_program"} and len(grade.cases) == len(one.cases)
        assert grade.reason == f"no answer: {kind}: signal 11" and grade.program_sha256 is None


@pytest.mark.parametrize(
    ("text", "fields", "outcome", "reason"),
    [
        ("I can't.", {}, "no_program", "no python code block"),
        ("```python\ndef parse_csv(t", {"finish": "length"}, "truncated", "inside the code block"),
        (
            "```python\ndef parse_csv(t",
            {"finish": "unknown", "ids": (1,) * 99},
            "truncated",
            "inside the code block",
        ),
        ("<think>\n", {"finish": "length"}, "truncated", "truncated in thinking"),
    ],
)
def test_without_a_program_nothing_runs(text: str, fields: dict[str, Any], outcome: str, reason: str) -> None:
    grade = grade_answer(CSV, answer(text, **fields), Down())
    assert set(outcomes(grade)) == {outcome} and reason in grade.reason and grade.program_sha256 is None


def test_constraints_read_the_final_part_alone() -> None:
    count = ", ".join(map(str, range(1, 41)))
    assert outcomes(grade_answer(COUNT, answer(f"<think>\n1, 3\n</think>\n{count}", "count"), None)) == [
        "pass"
    ]
    assert outcomes(grade_answer(COUNT, answer("<think>\n1, 2", "count"), None)) == ["no_program"]
    cut = answer(count[:20], "count", finish="length")
    assert outcomes(grade_answer(COUNT, cut, None)) == ["truncated"]


def test_an_answer_to_another_task_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an answer to the task csv, found one to count"):
        grade_answer(CSV, answer("", "count"), None)


class Counting:
    """Counts the programs that the real sandbox is asked to start."""

    def __init__(self, inner: Sandbox):
        self.inner, self.name, self.started = inner, inner.name, 0

    def open(self, program: Program, limits: Limits) -> Any:
        self.started += 1
        return self.inner.open(program, limits)


def test_equal_programs_are_run_once_and_graded_each(sandbox: Sandbox) -> None:
    counting: Any = Counting(sandbox)
    texts = [fenced("def parse_csv(t): return []\n"), fenced("def parse_csv(t): return [[]]\n")] * 3
    with Grader([CSV], counting, workers=2) as grader:
        grades = [f.result() for f in [grader.submit(answer(t, prompt=f"p{i}")) for i, t in enumerate(texts)]]
    assert counting.started == 2
    assert [g.prompt for g in grades] == [f"p{i}" for i in range(6)]
    assert len({g.program_sha256 for g in grades}) == 2
    assert grades[0].cases == grades[2].cases == grade_answer(CSV, answer(texts[0]), sandbox).cases


def test_an_outage_is_not_remembered(sandbox: Sandbox) -> None:
    class Flaky(Counting):
        def open(self, program: Program, limits: Limits) -> Any:
            if not self.started:
                self.started += 1
                raise SandboxUnavailable("down for a moment")
            return super().open(program, limits)

    flaky: Any = Flaky(sandbox)
    text = fenced((CSV.path / CSV.gold).read_text())
    with Grader([CSV], flaky) as grader:
        first = grader.submit(answer(text)).result()
        second = grader.submit(answer(text)).result()
    assert first.infra and set(outcomes(second)) == {"pass"}


def test_a_fault_of_the_grader_is_infra_and_not_the_end_of_the_run() -> None:
    class Broken(Down):
        def open(self, program: Program, limits: Limits) -> Any:
            raise OSError("Too many open files")

    broken: Any = Broken()
    text = fenced("def parse_csv(t): return []\n")
    with Grader([CSV], broken) as grader:
        for _ in range(2):
            grade = grader.submit(answer(text)).result()
            assert set(outcomes(grade)) == {"infra"} and "Too many open files" in grade.cases[0].observed


def test_an_interrupt_cancels_what_has_not_begun() -> None:
    gate = threading.Event()

    class Waiting(Down):
        def open(self, program: Program, limits: Limits) -> Any:
            gate.wait(30)
            return super().open(program, limits)

    waiting: Any = Waiting()
    with pytest.raises(KeyboardInterrupt), Grader([CSV], waiting) as grader:
        futures = [grader.submit(answer(fenced(f"def parse_csv(t): return {i}\n"))) for i in range(5)]
        while not futures[0].running():
            pass
        threading.Timer(0.2, gate.set).start()
        raise KeyboardInterrupt
    assert futures[0].result().infra and all(f.cancelled() for f in futures[1:])


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (1, 1, True), (1, True, False), (1, 1.0, False), (0.0, 0.0, True), (float("nan"), float("nan"), False),
        (None, None, True), (None, 0, False), ("é", "e\u0301", False), ([1, [2]], [1, [2]], True),
        ([1], (1,), False), ([1], [1, 1], False), ([1, 1], [1], False), ([True], [1], False), ([], {}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ({"a": 1}, {"a": 1, "b": 1}, False), ({"1": 1}, {1: 1}, False),
        ({"a": [1.5]}, {"a": [1.5]}, True), (10**400, 10**400, True),
    ],
)  # fmt: skip
def test_values_are_equal_by_type_and_value(expected: object, found: object, same: bool) -> None:
    assert equal(expected, found) is same
    assert len(show(found)) < 300


PROGRAMS: dict[Any, str] = {
    "javascript": "function f(x) { if (x < 0) throw new RangeError(); return x ? { n: [x * 2, x / 2], s: 'é' } : {}; }",
    "lua": "function f(x) if x < 0 then error('no') end if x == 0 then return {} end "
    "return { n = { x * 2, x / 2 }, s = 'é' } end",
}


@pytest.mark.parametrize(
    "language",
    [
        pytest.param("javascript", marks=pytest.mark.system("node")),
        pytest.param("lua", marks=pytest.mark.system("lua")),
    ],
)
def test_other_languages_are_graded_alike(language: Any, sandbox: Sandbox) -> None:
    cases = [
        Case(name="object", args=[3], returns={"n": [6, 1.5], "s": "é"}),
        Case(name="empty", args=[0], returns={}),
        Case(name="wrong", args=[3], returns={"n": [6, 1.5]}),
        Case(name="error", args=[-1], returns=0),
    ]
    assert graded(PROGRAMS[language], sandbox, *cases, language=language) == ["pass", "pass", "fail", "crash"]
    text = {
        "javascript": "console.log(require('fs').readFileSync(0, 'utf8').length)",
        "lua": "print(#io.read('a'))",
    }
    program = Case(name="c", stdin="abc", stdout="3\n")
    assert graded(text[language], sandbox, program, language=language, judge="program", entry=None) == [
        "pass"
    ]


def test_javascript_has_one_type_of_number() -> None:
    assert equal([1], [1.0], "javascript") and not equal([1], [True], "javascript")
    assert not equal(1, 1.0, "lua")


def test_lua_has_one_kind_of_table() -> None:
    assert equal({}, [], "lua") and equal({"a": {}}, {"a": []}, "lua")
    assert not equal({}, []) and not equal({}, None, "lua") and not equal({}, [1], "lua")


@pytest.mark.parametrize(
    "value", [[1 << 30_000], "x" * 10**6, [["y"] * 100] * 100, {i: i for i in range(999)}, "\x1b[31m\n"]
)
def test_shown_values_are_short_and_printable(value: object) -> None:
    assert len(show(value)) < 300 and show(value).isprintable()
