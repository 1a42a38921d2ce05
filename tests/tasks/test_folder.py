"""Threat: a task's folder means something else than it says, and a grade made from it is believed.

A key misspelt and ignored, a case that expects nothing, a mutant that names no case, a path that leads out of the
folder, a file that never ends: each must be refused with a sentence, and nothing but TaskError may come out of a
folder that anybody wrote.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks import folder as loading
from tasks import reading
from tasks.folder import TaskError, builtin_tasks, load_task, load_tasks, read_file

TASK = """schema = 1
name = "double"
title = "Double"
summary = "Write double(x)."
kind = "code"
judge = "function"
language = "python"
entry = "double"
max_new_tokens = 64
gold = "gold/solution.py"

[[mutant]]
file = "mutants/same.py"
fails = ["two"]
"""
PROMPTS = """[[prompt]]
id = "p1"
text = "Write double(x) in Python."

[[prompt]]
id = "p2"
text = "Implement double(x)."
"""
CASES = '{"name": "zero", "args": [0], "returns": 0}\n{"name": "two", "args": [2], "returns": 4}\n'
CONSTRAINTS = TASK.replace("function", "constraints").replace('kind = "code"', 'kind = "prose"')
CONSTRAINTS = CONSTRAINTS.replace('language = "python"\nentry = "double"\n', "")
CHECKS = TASK.replace('"function"', '"checks"\nchecks = "gold/solution.py"')
PROGRAM = TASK.replace('"function"', '"program"').replace('entry = "double"\n', "")


def write(path: Path, task: str = TASK, prompts: str = PROMPTS, cases: str = CASES) -> Path:
    for inner in ("gold", "mutants"):
        (path / inner).mkdir(parents=True, exist_ok=True)
    (path / "gold/solution.py").write_text("def double(x):\n    return 2 * x\n")
    (path / "mutants/same.py").write_text("def double(x):\n    return x\n")
    (path / "task.toml").write_text(task)
    (path / "prompts.toml").write_text(prompts)
    (path / "cases.jsonl").write_text(cases)
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "double")


def refused(path: Path, *parts: str) -> str:
    with pytest.raises(TaskError) as caught:
        load_task(path)
    message = str(caught.value)
    for part in (*parts, "expected", str(path)):
        assert part in message, message
    return message


def test_a_good_folder_is_read_whole(good: Path) -> None:
    task = load_task(good)
    assert (task.name, task.entry, task.judge, task.builtin) == ("double", "double", "function", False)
    assert [p.id for p in task.prompts] == ["p1", "p2"]
    assert [(c.name, c.args, c.returns) for c in task.cases] == [("zero", [0], 0), ("two", [2], 4)]
    assert task.mutants[0].fails == ["two"]
    assert read_file(task, task.gold) == "def double(x):\n    return 2 * x\n"


def test_null_is_something_to_return(tmp_path: Path) -> None:
    task = load_task(write(tmp_path / "t", cases='{"name": "two", "args": [2], "returns": null}\n'))
    assert task.cases[0].returns is None


def test_checks_that_are_not_there(tmp_path: Path) -> None:
    task = CHECKS.replace('checks = "gold/solution.py"', 'checks = "no.py"')
    refused(write(tmp_path / "t", task, cases='{"name": "two", "check": "check_two"}\n'), "checks", "no.py")


def test_checks_of_a_data_set(tmp_path: Path) -> None:
    task = load_task(write(tmp_path / "t", CHECKS, cases='{"name": "two", "check": "check_two"}\n'))
    assert (task.judge, task.checks, task.cases[0].check) == ("checks", "gold/solution.py", "check_two")


def test_the_builtin_tasks_load() -> None:
    tasks = builtin_tasks()
    assert {"csv", "iso8601", "prose", "count"} <= {t.name for t in tasks}
    assert all(t.builtin and len(t.prompts) >= 4 for t in tasks)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("schema = 1", "schema = 2", ("schema = 1", "found 2")),
        ("schema = 1", "", ("task.toml", "the key `schema`")),
        ('name = "double"', 'name = "Double it"', ("a-z", "Double it")),
        ("max_new_tokens", "max_tokens", ("max_new_tokens", "`max_tokens`")),
        ("max_new_tokens = 64", 'max_new_tokens = "64"', ("`int`", "`str`", "$.max_new_tokens")),
        ("max_new_tokens = 64", "max_new_tokens = 0", ("from 1 to", "found 0")),
        ('fails = ["two"]', 'fails = ["two"]\nfail = "x"', ("file, fails", "`fail`", "$.mutant[0]")),
        ('fails = ["two"]', 'fails = ["three"]', ("'three'", "two, zero")),
        ('fails = ["two"]', "fails = []", ("mutants/same.py", "[]")),
        ('kind = "code"', 'kind = "prose"', ('kind = "code"', "prose")),
        ('"function"', '"checks"', ("checks", "found none")),
        ('"function"', '"function"\nchecks = "gold/solution.py"', ("no checks",)),
        ('kind = "code"', 'kind = "code"\ncpu_s = 0', ("0.1 to 60 seconds", "found 0.0")),
        ('kind = "code"', 'kind = "code"\ncpu_s = nan', ("not finite",)),
        ('kind = "code"', 'kind = "poem"', ("'poem'", "$.kind")),
        ('language = "python"', 'language = "cobol"', ("cobol", "$.language")),
        ('language = "python"', "", ("language", "found none")),
        ('entry = "double"', "", ("entry", "found none")),
        ('entry = "double"', 'entry = "a b"', ("entry", "a b")),
        ('"gold/solution.py"', '"gold/other.py"', ("gold", "gold/other.py", "add that file")),
        ('"gold/solution.py"', '"../solution.py"', ("inside", "../solution.py")),
        ('"gold/solution.py"', '"/etc/passwd"', ("inside", "/etc/passwd")),
        ('"gold/solution.py"', '"gold/.hidden"', ("inside", ".hidden")),
        ('"mutants/same.py"', "'mutants\\..\\x'", ("inside",)),
        ('summary = "Write double(x)."', 'summary = ""', ("summary", "1 to 400")),
        ('title = "Double"', 'title = "a\\nb"', ("title", "one line")),
        ("schema = 1", "schema = ", ("TOML", "line 1")),
        ("schema = 1", "a." * 300 + "b = 1", ("line 1", "joined by dots")),
        ("schema = 1", "schema = " + "[" * 5000, ("nested",)),
    ],
)
def test_a_wrong_task_toml_is_refused_by_its_key(
    good: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    (good / "task.toml").write_text(TASK.replace(old, new, 1))
    refused(good, "task.toml" if "inside" not in parts else "gold/solution.py", *parts)


@pytest.mark.parametrize(
    ("prompts", "parts"),
    [
        ("", ("the key `prompt`",)),
        ("prompt = []", ("1 to 1,000",)),
        ('[[prompt]]\nid = "p1"\ntext = " "', ("p1", "characters")),
        ('[[prompt]]\nid = "p1"\ntext = "a"\nimage = "a.png"', ("image", "a.png")),
        ('[[prompt]]\nid = "v1-001"\ntext = "a"', ("v1-001", "rename")),
        ('[[prompt]]\nid = "p1"\ntext = "a"\n[[prompt]]\nid = "p1"\ntext = "b"', ("p1 twice",)),
        ('[[prompt]]\nid = "p1"\ntext = "a b"\n[[prompt]]\nid = "p2"\ntext = "a\\n b"', ("p1 and p2 alike",)),
        ('[[prompt]]\nid = "p1"\ntext = "a"\nsystem = "x"', ("id, text, image", "`system`", "$.prompt[0]")),
    ],
)
def test_a_wrong_prompt_is_refused(good: Path, prompts: str, parts: tuple[str, ...]) -> None:
    (good / "prompts.toml").write_text(prompts)
    refused(good, "prompts.toml", *parts)


@pytest.mark.parametrize(
    ("judge", "line", "parts"),
    [
        (TASK, "", ("pass everything",)),
        (TASK, '{"name": "two", "args": [1]}', ("returns and raises", "pass anything")),
        (TASK, '{"name": "two", "args": [1], "returns": 1, "raises": "E"}', ("one of returns and raises",)),
        (TASK, '{"name": "two", "returns": 1}', ("args",)),
        (TASK, '{"name": "two", "args": [1], "raises": "not a type"}', ("ValueError", "not a type")),
        (
            TASK,
            '{"name": "two", "args": [1], "returns": 1, "stdin": ""}',
            ('judge = "function"', "found stdin"),
        ),
        (TASK, '{"name": "two", "args": [1], "return": 1}', ("`return`",)),
        (TASK, '{"name": "two", "args": [1], "returns": NaN}', ("NaN",)),
        (TASK, '{"name": "two", "args": [1], "returns": 1e999}', ("not finite",)),
        (TASK, '{"name": "two", "args": [1], "returns": 1, "returns": 2}', ("'returns' twice",)),
        (TASK, '{"name": "two", "args": ["\\ud800"], "returns": 1}', ("surrogate",)),
        (TASK, '{"name": "two", "args": [' + "[" * 100_000, ("nesting",)),
        (TASK, '{"name": "two", "args": [' + "[" * 40 + "]" * 40 + '], "returns": 1}', ("nesting",)),
        (TASK, '{"name": "two", "args": [' + "9" * 3000 + '], "returns": 1}', ("4,096 bits",)),
        (TASK, '{"name": "two", "args": [' + "9" * 9000 + '], "returns": 1}', ("expected a JSON object",)),
        (TASK, '["two"]', ("`object`", "`array`")),
        (TASK, "two", ("no JSON",)),
        (TASK, '{"name": "Two!", "args": [1], "returns": 1}', ("a-z",)),
        (PROGRAM, '{"name": "two", "stdin": "1"}', ("both stdin and stdout",)),
        (PROGRAM, '{"name": "two", "stdin": "1", "stdout": "2", "args": []}', ("found args",)),
        (CHECKS, '{"name": "two"}', ("check", "found none")),
        (CHECKS, '{"name": "two", "check": "a.b"}', ("check", "a.b")),
        (CHECKS, '{"name": "two", "check": "two", "args": []}', ("found args",)),
        (CONSTRAINTS, '{"name": "two"}', ("words, recurs, no_loop, ends, counts",)),
        (CONSTRAINTS, '{"name": "two", "constraint": "words", "min": 1}', ("min and max", "found min")),
        (CONSTRAINTS, '{"name": "two", "constraint": "words", "min": 3, "max": 1}', ("3 and 1",)),
        (CONSTRAINTS, '{"name": "two", "constraint": "ends", "n": 1}', ("no numbers", "found n")),
        (CONSTRAINTS, '{"name": "two", "constraint": "no_loop", "n": 0, "max_repeats": 1}', ("n from 1",)),
        (CONSTRAINTS, '{"name": "two", "constraint": "recurs", "min": 9999999}', ("1,000,000",)),
    ],
)
def test_a_wrong_case_is_refused_with_its_line(
    tmp_path: Path, judge: str, line: str, parts: tuple[str, ...]
) -> None:
    path = write(tmp_path / "t", judge, cases="\n" + line + "\n")
    refused(path, "cases.jsonl", *(["line 2"] if line else []), *parts)


def test_a_case_name_may_stand_once(tmp_path: Path) -> None:
    refused(write(tmp_path / "t", cases=CASES + CASES), "line 3", "zero twice")


def test_a_stray_byte_is_refused_with_its_line(good: Path) -> None:
    (good / "cases.jsonl").write_bytes(CASES.encode() + b'{"name": "\xff"}')
    refused(good, "cases.jsonl, line 3", "UTF-8", "0xff")


@pytest.mark.parametrize("name", ["prompts.toml", "cases.jsonl", "task.toml"])
def test_a_missing_file_is_named(good: Path, name: str) -> None:
    (good / name).unlink()
    refused(good, name)


def test_a_pipe_is_refused_and_not_waited_for(good: Path) -> None:
    os.mkfifo(good / "gold/pipe")
    refused(good, "pipe")


def test_a_link_out_of_the_folder_is_refused_but_one_inside_is_not(good: Path, tmp_path: Path) -> None:
    (good / "gold/solution.py").rename(good / "gold/real.py")
    (good / "gold/solution.py").symlink_to("real.py")
    assert load_task(good)
    (good / "gold/solution.py").unlink()
    (tmp_path / "secret.py").write_text("secret")
    (good / "gold/solution.py").symlink_to(tmp_path / "secret.py")
    refused(good, "gold/solution.py", "leads out")


def test_a_link_to_a_folder_and_to_itself_are_refused(good: Path) -> None:
    (good / "loop").symlink_to(good)
    refused(good, "loop", "found a link to one")
    (good / "loop").unlink()
    (good / "self").symlink_to("self")
    refused(good, "self")


def test_too_much_is_refused(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_FILES", 4)
    refused(good, "at most 4 files")
    monkeypatch.setattr(reading, "MAX_FILES", 100)
    monkeypatch.setattr(reading, "MAX_FOLDER_BYTES", 100)
    refused(good, "100 bytes")
    monkeypatch.setattr(reading, "MAX_FOLDER_BYTES", 1 << 20)
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 20)
    refused(good, "20 bytes")
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 1 << 20)
    monkeypatch.setattr(reading, "MAX_DEPTH", 1)
    refused(good, "levels")


def test_the_digest_covers_every_file_and_its_name(good: Path) -> None:
    before = load_task(good).digest
    assert load_task(good).digest == before
    (good / ".cache").write_text("x")
    assert load_task(good).digest == before
    (good / "mutants/same.py").write_text("def double(x):\n    return 3\n")
    changed = load_task(good).digest
    (good / "note.txt").write_text("x")
    added = load_task(good).digest
    (good / "note.txt").rename(good / "note.tyt")
    assert len({before, changed, added, load_task(good).digest}) == 4


def test_a_directory_of_tasks_and_a_task_alike_can_be_named(good: Path) -> None:
    builtin = {t.name for t in builtin_tasks()}
    assert {t.name for t in load_tasks([good])} == builtin | {"double"}
    assert {t.name for t in load_tasks([good.parent])} == builtin | {"double"}
    assert [t.name for t in load_tasks([good], ["double", "csv"])] == ["csv", "double"]


def test_an_unknown_name_lists_those_there_are(good: Path) -> None:
    with pytest.raises(TaskError, match=r"found 'dubble'; there are count, csv, iso8601, prose.*double"):
        load_tasks([good], ["dubble"])


def test_two_tasks_of_one_name_are_refused(good: Path) -> None:
    shutil.copytree(good, good.parent / "again")
    with pytest.raises(TaskError, match=r"double, which is .*rename"):
        load_tasks([good.parent])
    with pytest.raises(TaskError, match="the built-in task"):
        load_tasks([write(good.parent / "mine", TASK.replace('name = "double"', 'name = "csv"'))])


def test_a_folder_without_a_task_among_tasks_is_not_passed_over(good: Path) -> None:
    (good.parent / "other").mkdir()
    (good.parent / "other/tasks.toml").write_text(TASK)
    with pytest.raises(TaskError, match=r"other: expected a task\.toml"):
        load_tasks([good.parent])


@pytest.mark.parametrize("path", ["nothing", "double/task.toml", "double/gold", "x" * 5000, "a\0b"])
def test_a_path_without_tasks_is_refused(good: Path, path: str) -> None:
    with pytest.raises(TaskError, match=r"expected a (folder|task)"):
        load_tasks([good.parent / path])


def test_too_many_tasks_are_refused(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MAX_TASKS", 0)
    with pytest.raises(TaskError, match="at most 0 tasks"):
        load_tasks([good.parent])


FILES = ("task.toml", "prompts.toml", "cases.jsonl")
TOKENS = [
    b'"',
    b"[",
    b"]]",
    b"{",
    b"}",
    b"\n",
    b"\0",
    b"\xff",
    b"\\u",
    b"1e999",
    b"NaN",
    b"=",
    b"'''",
    b"../",
    b"9" * 5000,
]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file=st.sampled_from(FILES),
    base=st.sampled_from([(TASK, CASES), (CONSTRAINTS, '{"name": "two", "constraint": "ends"}')]),
    edits=st.lists(
        st.tuples(
            st.floats(0, 1), st.integers(0, 12), st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6))
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_a_corrupted_folder_raises_nothing_but_task_error(
    tmp_path: Path, file: str, base: tuple[str, str], edits: list[tuple[float, int, bytes]]
) -> None:
    path = write(tmp_path / "t", base[0], cases=base[1])
    data = (path / file).read_bytes()
    for place, length, put in edits:
        at = int(place * len(data))
        data = data[:at] + put + data[at + length :]
    (path / file).write_bytes(data)
    try:
        task = load_task(path)
    except TaskError as error:
        assert str(error).isprintable() and len(str(error)) < 2000
    else:
        assert task.prompts and task.cases


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(), st.lists, max_leaves=8
    )
)
def test_a_case_of_any_json_loads_as_it_was_or_is_refused(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "t", cases=json.dumps({"name": "two", "args": [value], "returns": value}))
    try:
        case = load_task(path).cases[0]
    except TaskError:
        assert any(bad in json.dumps(value) for bad in ("NaN", "Infinity", "\\ud"))
    else:
        assert case.returns == value and type(case.returns) is type(value)


def test_a_large_hostile_folder_ends(good: Path) -> None:
    noise = random.Random(0)
    (good / "prompts.toml").write_text("a" * (4 << 20))
    refused(good, "TOML")
    (good / "prompts.toml").write_text("[[prompt]]\n" * 100_000)
    refused(good, "100,000 values")
    (good / "prompts.toml").write_text(PROMPTS)
    keys = ", ".join(f'"{noise.random()}": 0' for _ in range(40_000))
    (good / "cases.jsonl").write_text('{"name": "two", "args": [{' + keys + '}], "returns": 1}')
    assert load_task(good)
