"""Checks an answer against what a program can check: its length, a name that recurs, no loops, an end, a count.

Each takes time linear in the text's length and any Unicode text. The thinking part is left out before (see
`evals.thinking`). What more text could have put right counts as truncated where the budget ended the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from evals.types import CaseGrade, Outcome
from tasks.types import Case

_WORD: Final = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_NUMBER: Final = re.compile(r"[0-9]+")
_LETTER: Final = re.compile(r"[^\W\d_]")
_ENDS: Final = ".!?…。!?।؟۔"
_CLOSERS: Final = "\"'”’»«)]}*_`」』"
_MAX_DIGITS: Final = 9
_NO_NAMES: Final = frozenset(
    """the a an and but or nor so yet for if as at by in into of off on onto out over to up with from under upon
    i he she it we you they his her its our your their my me him us them this that these those there here
    one two three some many each every all any no not now then when while where who what why how which
    once soon later still after before until since because although though perhaps maybe suddenly finally
    was were is are be been had has have did do does will would could should may might must can let
    again just only even today tomorrow yesterday oh yes""".split()  # noqa: SIM905
)
"""Words that begin sentences and are no names, for texts in which they never stand in lower case."""

Checked = tuple[bool, bool, str, str]
"""holds; whether more text could still have made it hold; observed; expected."""


def check_constraint(case: Case, text: str, truncated: bool) -> CaseGrade:
    """The case's constraint on `text` (the final part of an answer); truncated: the budget ended the answer."""
    assert case.constraint is not None
    holds, could_still, observed, expected = _CHECKS[case.constraint](case, text, truncated)
    outcome: Outcome = "pass" if holds else "truncated" if truncated and could_still else "fail"
    return CaseGrade(case.name, outcome, observed, expected)


def _words(case: Case, text: str, truncated: bool) -> Checked:
    assert case.min is not None and case.max is not None
    count = len(text.split())
    return (
        case.min <= count <= case.max,
        count < case.min,
        f"{count} words",
        f"{case.min} to {case.max} words",
    )


def _recurs(case: Case, text: str, truncated: bool) -> Checked:
    """A name: a word with a capital, in a text where it never stands in lower case, and no common word."""
    assert case.min is not None
    words = [word.split("'")[0].split("’")[0] for word in _WORD.findall(text)]
    lower = {word for word in words if word.islower()}
    names = Counter(
        word
        for word in words
        if len(word) > 1 and word.istitle() and word.lower() not in lower and word.lower() not in _NO_NAMES
    )
    name, count = max(names.items(), key=lambda item: item[1], default=("", 0))
    observed = f"{_cut(name)}, {count} times" if name else "no name"
    return count >= case.min, True, observed, f"a name that stands {case.min} times or more"


def _no_loop(case: Case, text: str, truncated: bool) -> Checked:
    """No run of n words more than max_repeats times; words are compared without case and marks."""
    assert case.n is not None and case.max_repeats is not None
    numbers: dict[str, int] = {}
    words = [word.casefold().strip(".,;:!?…\"'“”’()*") for word in text.split()]
    ids = [numbers.setdefault(word, len(numbers)) for word in words]
    runs = _count_runs(ids, case.n)
    at, count = max(
        ((where, many) for where, many in runs.values()), key=lambda item: item[1], default=(0, 0)
    )
    said = _cut(" ".join(words[at : at + case.n]), 100)
    observed = f"{count} times: {said}" if count > case.max_repeats else f"{count} times at most"
    expected = f"no {case.n} words more than {case.max_repeats} times"
    return count <= case.max_repeats, False, observed, expected


def _count_runs(ids: list[int], n: int) -> dict[int, list[int]]:
    """Run of n ids (by an exact number for it) → where it stood first, and how often; linear in len(ids) · log n.

    Runs of a power of two are numbered by pairs of runs half as long, and a run of n by two that overlap.
    """
    if n > len(ids):
        return {}
    length, level = 1, ids
    while length * 2 <= n:
        pairs: dict[tuple[int, int], int] = {}
        level = [
            pairs.setdefault((level[i], level[i + length]), len(pairs)) for i in range(len(level) - length)
        ]
        length *= 2
    numbers: dict[tuple[int, int], int] = {}
    runs: dict[int, list[int]] = {}
    for i in range(len(ids) - n + 1):
        number = numbers.setdefault((level[i], level[i + n - length]), len(numbers))
        runs.setdefault(number, [i, 0])[1] += 1
    return runs


def _ends(case: Case, text: str, truncated: bool) -> Checked:
    tail = text[-400:].rstrip().rstrip(_CLOSERS).rstrip()
    ended = tail.endswith(tuple(_ENDS))
    last = _cut(text.rstrip()[-30:]) or "nothing"
    observed = f"cut off by the budget after: {last}" if truncated else f"ends with: {last}"
    return (
        ended and not truncated,
        True,
        observed,
        "a mark that ends a sentence, and the model stopped by itself",
    )


def _counts(case: Case, text: str, truncated: bool) -> Checked:
    """Every whole number from start to stop, once and in order. Lines with letters before the first number that counts
    are an introduction and don't count."""
    assert case.start is not None and case.stop is not None
    expected = f"{case.start} to {case.stop}, each once and in order"
    wanted = case.start
    begin = _after_introduction(text)
    for found in _NUMBER.finditer(text, begin):
        number = int(found[0]) if len(found[0]) <= _MAX_DIGITS else -1
        if number != wanted or wanted > case.stop:
            after = f"after {wanted - 1}" if wanted > case.start else "at the start"
            half = found.end() == len(text) and str(wanted).startswith(found[0]) and wanted <= case.stop
            return False, half, f"{after} came {_cut(found[0], 20)}", expected
        wanted += 1
    if wanted > case.stop:
        return True, False, f"{case.start} to {case.stop}", expected
    return False, True, f"stops after {wanted - 1}" if wanted > case.start else "no number", expected


def _after_introduction(text: str) -> int:
    """Offset of the first line that has a digit and no letter, or the text's length."""
    offset = 0
    for line in text.splitlines(keepends=True):
        if _NUMBER.search(line) and not _LETTER.search(line):
            return offset
        offset += len(line)
    return offset


def _cut(text: str, limit: int = 60) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= limit else plain[:limit] + "…"


_CHECKS: Final[dict[str, Callable[[Case, str, bool], Checked]]] = {
    "words": _words,
    "recurs": _recurs,
    "no_loop": _no_loop,
    "ends": _ends,
    "counts": _counts,
}
