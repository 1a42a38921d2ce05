"""Threat: a data set's row becomes a task that asks or checks something else, or a bad row takes good ones along."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.rows import COLUMNS, RowError, parts, returns_none, shape_of
from evals.task_import import ImportFailed, import_tasks
from tasks.folder import load_task, load_tasks, read_file

HUMANEVAL: dict[str, Any] = {
    "task_id": "HumanEval/7",
    "prompt": "import math\n\n\ndef base(x):\n    return x\n\n\ndef half(x: float):\n    '''Half of x.'''\n",
    "entry_point": "half",
    "canonical_solution": "    return base(x) / 2\n",
    "test": "def check(candidate):\n    assert candidate(base(3)) == 1.5\n    assert half(1) == 0.5\n",
}
MBPP: dict[str, Any] = {
    "task_id": 11,
    "text": "Write a function to remove first and last occurrence of a given character.",
    "code": "def helper(s):\r\n    return s\r\n\r\ndef trim(s, ch): \r\n    return helper(s).strip(ch)\r\n",
    "test_list": [
        "assert trim('hello', 'h') == 'ello'",
        'assert set(trim("a\\n\'b", "a")) == {"\\n", "\'", "b"}',
    ],
    "test_setup_code": "import math",
    "challenge_test_list": [],
}


def write(path: Path, *rows: dict[str, Any]) -> str:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return str(path)


def check_in_a_fresh_interpreter(folder: Path, program: str) -> dict[str, str]:
    """The checks beside a program of ours, without a sandbox: only for the rows above, which are our own."""
    task = load_task(folder)
    assert task.checks is not None
    runner = (
        f"import runpy\nf = runpy.run_path({str(folder / program)!r})[{task.entry!r}]\n"
        f"checks = runpy.run_path({str(folder / task.checks)!r})\n"
        f"for name in {[c.check for c in task.cases]!r}:\n"
        "    try:\n        checks[name](f); print(name, 'passed')\n"
        "    except Exception as e: print(name, type(e).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", runner], capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def test_a_humaneval_row(tmp_path: Path) -> None:
    made = import_tasks(write(tmp_path / "rows.jsonl.gz", HUMANEVAL), tmp_path / "out")
    assert (made.names, made.skipped) == (("humaneval-7",), ())
    folder = tmp_path / "out/humaneval-7"
    task = load_task(folder)
    assert (task.judge, task.entry, [c.check for c in task.cases]) == ("checks", "half", ["run_check"])
    assert HUMANEVAL["prompt"].strip() in task.prompts[0].text
    assert "rows.jsonl.gz" in task.summary and str(tmp_path) not in task.summary
    assert check_in_a_fresh_interpreter(folder, task.gold) == {"run_check": "passed"}
    assert check_in_a_fresh_interpreter(folder, task.mutants[0].file)["run_check"] != "passed"


def test_an_mbpp_row(tmp_path: Path) -> None:
    made = import_tasks(write(tmp_path / "rows.jsonl", MBPP), tmp_path / "out")
    folder = tmp_path / "out" / made.names[0]
    task = load_task(folder)
    assert (task.name, task.entry) == ("mbpp-11", "trim") and MBPP["test_list"][0] in task.prompts[0].text
    assert "\r" not in read_file(task, task.gold)
    assert check_in_a_fresh_interpreter(folder, task.gold) == {"assert_1": "passed", "assert_2": "passed"}
    assert set(check_in_a_fresh_interpreter(folder, task.mutants[0].file).values()).isdisjoint({"passed"})


def test_checks_that_draw_are_repeatable(tmp_path: Path) -> None:
    """Two runs of equal programs must have equal outcomes; HumanEval/38 draws its words at random."""
    draws = "import random\nassert f'{random.random()} {half(2)}' == '0.8444218515250481 1.0'"
    humaneval = {
        **HUMANEVAL,
        "test": "def check(candidate):\n" + "".join(f"    {x}\n" for x in draws.splitlines()),
    }
    mbpp = {
        **MBPP,
        "test_list": ["import random; assert random.random() == 0.8444218515250481 and trim('a', 'a') == ''"],
    }
    for name, row in (("a", humaneval), ("b", mbpp)):
        made = import_tasks(write(tmp_path / f"{name}.jsonl", row), tmp_path / name)
        folder = tmp_path / name / made.names[0]
        assert set(check_in_a_fresh_interpreter(folder, "gold/solution.py").values()) == {"passed"}


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([HUMANEVAL]), tmp_path / "rows.parquet")
    assert import_tasks(str(tmp_path / "rows.parquet"), tmp_path / "out").names == ("humaneval-7",)


def test_a_bad_row_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    rows = [
        HUMANEVAL,
        {**HUMANEVAL, "task_id": "HumanEval/8", "entry_point": "os.system"},
        HUMANEVAL,
        {**HUMANEVAL, "task_id": "HumanEval/9", "test": "assert half(1)"},
        {**HUMANEVAL, "task_id": "HumanEval/10"},
        {**HUMANEVAL, "task_id": "HumanEval/11", "entry_point": "check"},
    ]
    made = import_tasks(write(tmp_path / "rows.jsonl", *rows), tmp_path / "out")
    assert made.names == ("humaneval-7", "humaneval-10")
    assert [s.row for s in made.skipped] == [1, 2, 3, 5]
    for skipped, reason in zip(
        made.skipped, ["os.system", "twice", "define check", "found 'check'"], strict=True
    ):
        assert reason in skipped.reason
    assert {t.name for t in load_tasks([tmp_path / "out"]) if not t.builtin} == set(made.names)


def test_limit(tmp_path: Path) -> None:
    rows = [{**MBPP, "task_id": i} for i in range(5)]
    assert import_tasks(write(tmp_path / "r.jsonl", *rows), tmp_path / "out", limit=2).names == (
        "mbpp-0",
        "mbpp-1",
    )


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("r.jsonl", '{"a": 1}\n', "found a"),
        ("r.jsonl", "no json\n", "r.jsonl"),
        ("r.jsonl", "", "r.jsonl"),
        ("r.csv", "a,b\n", "another kind of file"),
        ("r.parquet", "PAR1", "r.parquet"),
        ("r.jsonl", json.dumps({**HUMANEVAL, "prompt": ""}) + "\n", "row 0: expected prompt"),
    ],
)
def test_what_cannot_be_read_leaves_nothing(tmp_path: Path, name: str, text: str, found: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ImportFailed) as caught:
        import_tasks(str(tmp_path / name), tmp_path / "out")
    assert found in str(caught.value) and "expected" in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("source", ["nothing.jsonl", "nothing", "/no/such/file.jsonl", "a/b/c", ""])
def test_a_source_that_is_not_there(tmp_path: Path, source: str) -> None:
    with pytest.raises(ImportFailed, match="expected"):
        import_tasks(source, tmp_path / "out")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("x")
    with pytest.raises(ImportFailed, match="is empty; choose another"):
        import_tasks(write(tmp_path / "r.jsonl", MBPP), tmp_path / "out")
    assert (tmp_path / "out/mine").read_text() == "x"


def test_an_out_that_cannot_be_written(tmp_path: Path) -> None:
    source = write(tmp_path / "r.jsonl", MBPP)
    with pytest.raises(ImportFailed, match="expected to write"):
        import_tasks(source, tmp_path / "r.jsonl/out")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"test_list": []}, "0"),
        ({"test_list": "assert trim(1)"}, "str"),
        ({"test_list": ["assert other(1)"]}, "none that all of them call"),
        ({"test_list": [None]}, "NoneType"),
        ({"code": None}, "NoneType"),
        ({"code": "x\0y"}, "NUL"),
        ({"task_id": "§"}, "'\\xa7'"),
        ({"text": None, "prompt": None}, "NoneType"),
    ],
)
def test_a_row_that_no_task_can_be_made_of(change: dict[str, Any], found: str) -> None:
    with pytest.raises(RowError, match="expected") as caught:
        parts({**MBPP, **change}, "mbpp")
    assert found in str(caught.value)


def test_shapes_are_told_by_their_columns() -> None:
    assert shape_of(frozenset(HUMANEVAL)) == "humaneval"
    assert shape_of(frozenset(MBPP)) == shape_of(frozenset({*COLUMNS["mbpp"], "prompt"})) == "mbpp"
    with pytest.raises(RowError, match="canonical_solution"):
        shape_of(frozenset({"question", "answer"}))


ANY = st.none() | st.integers() | st.text(max_size=20) | st.lists(st.text(max_size=10), max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["humaneval", "mbpp"]),
    st.dictionaries(st.sampled_from([*HUMANEVAL, *MBPP]), ANY, max_size=4),
)
def test_any_row_makes_parts_or_a_row_error(shape: Any, change: dict[str, Any]) -> None:
    row = {**(HUMANEVAL if shape == "humaneval" else MBPP), **change}
    try:
        made = parts(row, shape)
    except RowError:
        return
    assert made.cases and made.entry.isidentifier() and returns_none(made)
