"""The threat: a depth that isn't the depth it is called, or filler that answers, asks or changes from run to run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evals.sample import sample_dir
from evals.tokens import TokenTable
from tasks.depth import at_depth, base_and_depth, parse_depths
from tasks.errors import TaskError
from tasks.filler import HEAD, TAIL, filler
from tasks.folder import builtin_tasks

FIRST = "Notes from an archive, for the record only. They have nothing to do with the request after them.\n\n"


@pytest.fixture(scope="module")
def table() -> TokenTable:
    return TokenTable.load(sample_dir())


@pytest.mark.parametrize("tokens", [64, 256, 1024, 4096, 16384])
def test_filler_has_its_tokens_to_within_a_few(table: TokenTable, tokens: int) -> None:
    found = table.count(filler(tokens, "0/csv/p1", table.count))
    assert tokens - 8 <= found <= tokens


def test_filler_is_the_same_for_a_seed_and_another_for_another() -> None:
    by_words = lambda text: len(text.split())  # noqa: E731
    one, same, other = (filler(300, seed, by_words) for seed in ("0/csv/p1", "0/csv/p1", "1/csv/p1"))
    assert one == same != other
    # drawn by a generator that no version of Python may change
    assert one.startswith(f"{FIRST}In a wet spring, two masons took reed thatch and sailcloth from Ravensey")


def test_filler_asks_nothing_and_holds_no_program() -> None:
    text = filler(5000, "x", lambda text: len(text.split()))
    assert text.startswith(HEAD) and text.endswith(TAIL)
    inner = text.removeprefix(HEAD).removesuffix(TAIL)
    assert not re.search(r"[?`{}<>=0-9]", inner)
    assert len(set(re.split(r"(?<=\.)\s+", inner))) > 200, "it repeats itself"


def test_filler_shorter_than_its_own_lines_is_those_lines() -> None:
    assert filler(1, "x", len) == HEAD + TAIL


@pytest.mark.parametrize(
    "text",
    ["", "0", "63", "512,", "512,512", "-512", "512.5", "1e9", "4000001", ",".join(map(str, range(64, 84)))],
)
def test_depths_out_of_form_are_refused(text: str) -> None:
    with pytest.raises(TaskError, match=r"--depths .*: expected 1 to 16 different numbers"):
        parse_depths(text)


def test_depths_are_sorted() -> None:
    assert parse_depths("4096, 512") == (512, 4096)


def test_a_task_at_a_depth_is_told_by_its_name() -> None:
    task = builtin_tasks()[0]
    deep = at_depth(task, 512)
    assert (deep.name, deep.depth, deep.cases) == (f"{task.name}@512", 512, task.cases)
    assert base_and_depth(deep.name) == (task.name, 512)
    assert base_and_depth(task.name) == (task.name, None)
    assert base_and_depth("a@b") == ("a", None)
    assert Path(deep.path) == task.path
