"""Threat: a data set's checks run on the host, a program reaches what grades it, or an outage of either is a score.

Both run in the real sandbox. HumanEval itself, all of it, is in test_humaneval.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals import checks as checking
from evals.checks import CheckResult, run_checks
from evals.grade import grade_answer
from evals.types import Answer
from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Program, Sandbox, SandboxUnavailable
from tasks.folder import load_task

LIMITS = Limits(wall_s=20, cpu_s=1)
NOISE = (
    "def check(c):\n    import os\n    for fd in range(3, 20):\n"
    "        try: os.write(fd, b'9' * 50)\n        except OSError: pass\n"
)
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Bubblewrap()
    yield made
    made.close()


def run(
    sandbox: Any, program: str, checks: str, *functions: str, limits: Limits = LIMITS
) -> list[CheckResult]:
    return run_checks(sandbox, program.encode(), "f", checks.encode(), functions or ("check",), limits)


def outcome(sandbox: Any, program: str, checks: str, **more: Any) -> str:
    (result,) = run(sandbox, program, checks, **more)
    return result.outcome


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("def f(x):\n    return x * x", "passed"),
        ("def f(x):\n    return x * 2", "failed"),
        ("def f(x):\n    return None", "failed"),
        ("def f(x):\n    return (i for i in [4])", "failed"),
        ("def f(x):\n    raise KeyError", "raised"),
        ("def f(x):\n    raise AssertionError", "raised"),
        ("def f(x:", "raised"),
        ("def g(x): pass", "raised"),
        ("import os\ndef f(x):\n    os._exit(0)", "crash"),
        ("import sys\ndef f(x):\n    sys.exit(0)", "raised"),
        ("def f(x):\n    while True: pass", "timeout"),
        ("def f(x):\n    return 'x' * (4 << 20)", "output_limit"),
    ],
)
def test_what_became_of_a_program(sandbox: Sandbox, program: str, expected: str) -> None:
    assert outcome(sandbox, program, CHECK) == expected


FORGERIES = {
    "always equal": "class E(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef f(x): return E(0)",
    "the word itself": "def f(x): return ['done', 'passed', '']",
    "written to every descriptor": "import os\nbody = b'l3;s4:dones6:passeds0:'\nfor fd in range(3, 20):\n"
    "    try: os.write(fd, b'%d\\n%s' % (len(body), body))\n    except OSError: pass\ndef f(x): return 0",
    "an exit that succeeds": "import os\nprint('1 passed', flush=True)\nos._exit(0)\ndef f(x): return 0",
    "another's checks": "open('/code/checks.py', 'w').write('def check(c): pass')\ndef f(x): return 0",
    "reads the checks": "import os\ndef f(x):\n    for d, _, names in os.walk('/code'):\n        for n in names:\n"
    "            if b'def check' + b'(cand' in open(d + '/' + n, 'rb').read(): return x * x\n    return 0",
    "patches the codec": "import sys\nsys.modules['__main__'].encode = lambda x, d=0: b't'\ndef f(x): return 0",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_does_not_pass(sandbox: Sandbox, name: str) -> None:
    assert outcome(sandbox, FORGERIES[name], CHECK) != "passed"


def test_values_of_every_kind_arrive_as_they_were(sandbox: Sandbox) -> None:
    checks = (
        "def check(c):\n    for v in (None, True, 1, 10**30, -0.5, 'é', b'\\0', [1, (2,)], {'a': {3}}, {(1, 2): []}):\n"
        "        assert c(v) == v and type(c(v)) is type(v), v\n"
    )
    assert run(sandbox, "def f(x): return x", checks) == [CheckResult("passed")]


@pytest.mark.parametrize("kind", ["ValueError", "UnicodeDecodeError", "Mine"])
def test_an_exception_can_be_expected(sandbox: Sandbox, kind: str) -> None:
    program = f"class Mine(Exception): pass\ndef f(x):\n    raise {kind}{'()' if kind == 'Mine' else ''}"
    if kind == "UnicodeDecodeError":
        program = "def f(x):\n    return b'\\xff'.decode()"
    checks = "def check(c):\n    try: c(1)\n    except Exception as e: assert type(e).__name__ == KIND\n    else: 1 / 0\n"
    checks = f"KIND = {kind!r}\n{checks}"
    assert outcome(sandbox, program, checks) == "passed"
    assert outcome(sandbox, "def f(x): return x", checks) == "broken"


def test_a_check_cannot_pass_by_catching_the_end_of_the_program(sandbox: Sandbox) -> None:
    checks = "def check(c):\n    try: c(1)\n    except BaseException: pass\n"
    assert outcome(sandbox, "import os\ndef f(x): os._exit(0)", checks) == "crash"


@pytest.mark.parametrize(
    ("checks", "outcome_", "detail"),
    [
        ("def check(c):\n    assert len(c(1)) == 1, 'é'\n", "broken", "TypeError: object of type 'int'"),
        ("def check(c):\n    assert c(1) == 2, 'no'\n", "failed", "AssertionError: no"),
        ("def check(c):\n    c(lambda: 1)\n", "broken", "function"),
        ("def check(c):\n    c(x=1)\n", "broken", "keyword"),
        ("def other(c): pass\n", "broken", "define no check"),
        ("1 / 0\n", "broken", "ZeroDivisionError while loading"),
        ("def check(c):\n    import sys; sys.exit(0)\n", "broken", "SystemExit"),
        ("def check(c):\n    import os; os._exit(0)\n", "broken", "the checks ended"),
        ("def check(c):\n    while True: pass\n", "broken", "the checks ended: timeout cpu_s"),
        ("def check(c):\n    print('3\\nxxx' * 9, flush=True)\n", "passed", ""),
        (NOISE, "broken", "no message"),
    ],
)  # fmt: skip
def test_checks_that_misbehave(sandbox: Sandbox, checks: str, outcome_: str, detail: str) -> None:
    (result,) = run(sandbox, "def f(x): return x", checks)
    assert result.outcome == outcome_ and detail in result.detail


def test_each_check_has_its_own_result_and_a_program_that_ended_is_started_again(sandbox: Sandbox) -> None:
    checks = "".join(f"def c{i}(c):\n    assert c({i}) == {i}\n" for i in range(4))
    program = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    return 9 if x == 2 else x"
    results = run(sandbox, program, checks, "c0", "c1", "c2", "c3")
    assert [r.outcome for r in results] == ["passed", "crash", "failed", "passed"]


def test_checks_that_died_are_started_again_too(sandbox: Sandbox) -> None:
    checks = "import os\ndef c0(c): os._exit(c(1))\ndef c1(c):\n    assert c(1) == 1\n"
    results = run(sandbox, "def f(x): return x", checks, "c0", "c1", "c0", "c1")
    assert [r.outcome for r in results] == ["broken", "passed", "broken", "passed"]


def test_checks_do_not_see_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    checks = (
        f"import os\ndef check(c):\n    assert not os.path.exists({str(tmp_path / 'secret')!r})\n"
        "    assert os.getpid() < 100\n"
        "    try: open('/code/x', 'w')\n    except OSError: pass\n    else: assert False\n"
    )
    assert outcome(sandbox, "def f(x): return x", checks) == "passed"


def test_calls_without_end_are_a_timeout(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MAX_CALLS", 50)
    assert outcome(sandbox, "def f(x): return x", "def check(c):\n    while True: c(1)\n") == "timeout"
    swallowing = "def check(c):\n    while True:\n        try: c(1)\n        except BaseException: pass\n"
    assert outcome(sandbox, "def f(x): return x", swallowing) == "broken"


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
def test_an_outage_is_infra(sandbox: Sandbox, starts: int) -> None:
    results = run(Down(sandbox, starts), "def f(x): return x * x", CHECK, "check", "check")
    assert [r.outcome for r in results] == ["infra", "infra"] and "start it" in results[0].detail


def test_an_answer_is_graded_by_checks(sandbox: Sandbox, tmp_path: Path) -> None:
    files = {
        "task.toml": 'schema = 1\nname = "sq"\ntitle = "Sq"\nsummary = "Sq."\nkind = "code"\njudge = "checks"\n'
        'language = "python"\nentry = "f"\nmax_new_tokens = 9\nchecks = "checks.py"\ngold = "gold.py"\n',
        "prompts.toml": '[[prompt]]\nid = "p1"\ntext = "f"\n',
        "cases.jsonl": '{"name": "all", "check": "check"}\n{"name": "gone", "check": "nothing"}\n',
        "checks.py": CHECK,
        "gold.py": "def f(x):\n    return x * x\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    answer = Answer(
        "plain", "sq", "p1", 0, "", 1, 9, text=f"```python\n{files['gold.py']}```\n", finish="stop"
    )
    cases = grade_answer(load_task(tmp_path), answer, sandbox).cases
    assert [(c.case, c.outcome) for c in cases] == [("all", "pass"), ("gone", "fail")]
