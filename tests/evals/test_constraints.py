"""Threat: a text that skips, repeats, loops or breaks off passes its constraint, or a good one is refused.

Prose is judged by these alone, and a skipped or doubled token shows first in the count (mlx-lm#846).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.constraints import check_constraint
from tasks.folder import builtin_tasks, read_file
from tasks.types import Case

COUNT = ", ".join(map(str, range(1, 41)))


def outcome(text: str, truncated: bool = False, **fields: Any) -> str:
    return check_constraint(Case(name="c", **fields), text, truncated).outcome


def counts(text: str, truncated: bool = False) -> tuple[str, str]:
    grade = check_constraint(Case(name="c", constraint="counts", start=1, stop=40), text, truncated)
    return grade.outcome, grade.observed


@pytest.mark.parametrize(
    "text",
    [
        COUNT,
        COUNT.replace(", ", "\n"),
        COUNT.replace(",", ""),
        COUNT + ".",
        "Here are the numbers 1 to 40:\n\n" + COUNT,
    ],
)
def test_a_whole_count_passes(text: str) -> None:
    assert counts(text) == ("pass", "1 to 40")


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        (COUNT.replace(" 23,", ""), "after 22 came 24"),
        (COUNT.replace(" 30,", " 30, 30,"), "after 30 came 30"),
        (COUNT.replace("18, 19", "19, 18"), "after 17 came 19"),
        (COUNT.replace("18, 19", "1819"), "after 17 came 1819"),
        (COUNT + ", 41", "after 40 came 41"),
        (COUNT + "\nand 40", "after 40 came 40"),
        (COUNT[: COUNT.index(", 40")], "stops after 39"),
        (COUNT.replace("1, 2", "2"), "at the start came 2"),
        ("1" * 5000, "at the start came " + "1" * 20 + "…"),
        ("٠١٢", "no number"),
        ("", "no number"),
        ("one, two", "no number"),
    ],
)
def test_a_faulty_count_fails_and_says_where(text: str, observed: str) -> None:
    assert counts(text) == ("fail", observed)


def test_a_count_that_the_budget_cut_is_truncated_unless_it_was_wrong_before() -> None:
    assert counts(COUNT[:60], truncated=True)[0] == "truncated"
    assert counts(COUNT[:60].replace(" 9,", ""), truncated=True)[0] == "fail"


def test_words() -> None:
    def words(n: int, truncated: bool = False) -> str:
        return outcome("né " * n, truncated, constraint="words", min=3, max=5)

    assert [words(n) for n in range(2, 7)] == ["fail", "pass", "pass", "pass", "fail"]
    assert words(2, True) == "truncated" and words(6, True) == "fail"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The keeper was called Marta. Marta slept. Then Marta's lamp went out.", "pass"),
        ("Zoë lit it. Zoë saw. ‘Zoë!’", "pass"),
        ("Он жил там. Иван спал. Иван ел. Иван ушёл.", "pass"),
        ("The keeper was called Marta. She slept. She ate. She left.", "fail"),
        ("Rain fell. Rain fell. Rain fell, and the rain stayed.", "fail"),
        ("The A I. The A I. The A I.", "fail"),
        ("marta marta marta", "fail"),
        ("MARTA MARTA MARTA", "fail"),
        ("", "fail"),
    ],
)
def test_recurs(text: str, expected: str) -> None:
    assert outcome(text, constraint="recurs", min=3) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b c x a b c y", "pass"),
        ("a b c x a b c y a b c", "fail"),
        ("A b, c! x a B c y 'a b c'", "fail"),
        ("a a a a a", "fail"),
        ("a a a a", "pass"),
        ("a b", "pass"),
        ("", "pass"),
    ],
)
def test_no_loop(text: str, expected: str) -> None:
    assert outcome(text, constraint="no_loop", n=3, max_repeats=2) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 12))
def test_no_loop_agrees_with_counting_every_run(words: list[str], n: int) -> None:
    runs = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    most = max((runs.count(run) for run in runs), default=0)
    for limit in (most, most - 1):
        if limit >= 1:
            got = outcome(" ".join(words), constraint="no_loop", n=n, max_repeats=limit)
            assert got == ("pass" if most <= limit else "fail")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It ended.", "pass"),
        ('"Really?"\n', "pass"),
        ("**No!**", "pass"),
        ("終わり。", "pass"),
        ("It was", "fail"),
        ("It was,", "fail"),
        ("", "fail"),
    ],
)
def test_ends(text: str, expected: str) -> None:
    assert outcome(text, constraint="ends") == expected
    assert outcome(text, True, constraint="ends") == "truncated"


@pytest.mark.parametrize(
    "task", [t for t in builtin_tasks() if t.judge == "constraints"], ids=lambda t: t.name
)
def test_gold_passes_and_each_mutant_fails_what_it_was_made_for(task: Any) -> None:
    def failed(file: str) -> set[str]:
        text = read_file(task, file)
        return {c.name for c in task.cases if check_constraint(c, text, False).outcome != "pass"}

    assert failed(task.gold) == set()
    for mutant in task.mutants:
        assert set(mutant.fails) <= failed(mutant.file), mutant.file


EVERY = [
    {"constraint": "words", "min": 1, "max": 9},
    {"constraint": "recurs", "min": 2},
    {"constraint": "no_loop", "n": 3, "max_repeats": 1},
    {"constraint": "no_loop", "n": 1_000_000, "max_repeats": 1},
    {"constraint": "ends"},
    {"constraint": "counts", "start": 1, "stop": 1_000_000},
]


@settings(deadline=None)
@given(st.text(), st.booleans(), st.sampled_from(EVERY))
def test_any_text_gets_a_short_outcome(text: str, truncated: bool, fields: dict[str, Any]) -> None:
    grade = check_constraint(Case(name="c", **fields), text, truncated)
    assert grade.outcome in ("pass", "fail", "truncated")
    assert len(grade.observed) < 200 and grade.expected


@pytest.mark.parametrize("unit", ["a ", "A'", "9", "1,", ".", '"', "Ab-", "\n", "1\n", "İ", "\u0301"])
@pytest.mark.parametrize("fields", EVERY, ids=lambda f: str(f["constraint"]))
def test_long_text_ends(unit: str, fields: dict[str, Any]) -> None:
    assert outcome(unit * (200_000 // len(unit)), **fields)
