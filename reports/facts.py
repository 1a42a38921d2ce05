"""Looks up what was found about an answer, and groups answers that are the same, so that each is shown once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from statistics import median, quantiles

import msgspec

from evals.speed import decode_rate
from evals.together import BatchRates, Place, place_of
from evals.types import Answer, Comparison, Grade, Margin
from reports import redact as redacted
from reports.excerpts import Shelf
from reports.private import scrubbed
from reports.view import Side, Spread

VALUE_LIMIT = 2_000
"""Characters of an observed or expected value, or of an error's message, that a report shows."""

_PROBES = {
    "state": "asked again later",
    "start": "in a fresh process",
    "fill": "asked once more to keep up the load",
    "whole": "asked again without a stream",
    "raw": "asked past the chat template",
}

Key = tuple[str, str, str, int]
"""arm, task, prompt, repeat"""


class Facts:
    """Comparisons with the base arms, margins and grades, by arm, task, prompt and repeat."""

    def __init__(
        self,
        bases: Collection[str],
        comparisons: Iterable[Comparison],
        margins: Iterable[Margin],
        grades: Iterable[Grade],
        redact: bool,
    ) -> None:
        self.comparisons: dict[Key, Comparison] = {}
        self.margins: dict[Key, Margin] = {(m.arm, m.task, m.prompt, m.repeat): m for m in margins}
        self.grades: dict[Key, Grade] = {}
        self._offsets: dict[tuple[str, str], int] = {}
        for found in comparisons:
            if found.base in bases:
                key = (found.arm, found.task, found.prompt, found.repeat)
                self.comparisons[key] = redacted.comparison(found) if redact else found
                self._note_offset(found)
        for grade in grades:
            key = (grade.arm, grade.task, grade.prompt, grade.repeat)
            self.grades[key] = redacted.grade(grade) if redact else _short(grade)

    def _note_offset(self, found: Comparison) -> None:
        offset = found.divergence.byte_offset if found.divergence else None
        if offset is not None:
            place = (found.task, found.prompt)
            self._offsets[place] = min(offset, self._offsets.get(place, offset))

    def parts(self, answer: Answer) -> bool:
        """Whether some arm's text is known to part from the base's on this answer's prompt."""
        return (answer.task, answer.prompt) in self._offsets

    def first_divergence(self, answer: Answer) -> int:
        """Index into the answer's text of the first place where any arm parts from the base on this prompt."""
        offset = self._offsets.get((answer.task, answer.prompt), 0)
        return len(answer.text.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "ignore"))


def _short(grade: Grade) -> Grade:
    cases = tuple(
        msgspec.structs.replace(
            case, observed=case.observed[:VALUE_LIMIT], expected=case.expected[:VALUE_LIMIT]
        )
        for case in grade.cases
    )
    return msgspec.structs.replace(grade, cases=cases, reason=scrubbed(grade.reason[:VALUE_LIMIT]))


class Variant:
    """One distinct answer to a prompt, and who gave it."""

    def __init__(self, first: Answer, text: int, redact: bool) -> None:
        failure = first.failure
        if failure is not None:
            message = "" if redact else scrubbed(failure.message[:VALUE_LIMIT])
            failure = msgspec.structs.replace(failure, message=message)
        self.text = text
        self.tokens = len(first.ids)
        self.rate = decode_rate(first)
        self.first = msgspec.structs.replace(first, ids=(), steps=(), text="", streamed=None, failure=failure)
        self.members: list[tuple[str, int]] = []
        self.probed: list[tuple[str, str]] = []

    def who(self, among: Collection[str]) -> tuple[str, ...]:
        """Its members of these arms in words: "plain ×2" for two repeats from the first on, "plain, repeat 2" for that
        one alone."""
        said = []
        for arm in dict.fromkeys(arm for arm, _ in self.members if arm in among):
            repeats = sorted(repeat for a, repeat in self.members if a == arm)
            if repeats == list(range(len(repeats))):
                said.append(arm if len(repeats) == 1 else f"{arm} ×{len(repeats)}")
            else:
                said.append(f"{arm}, repeat {', '.join(str(repeat + 1) for repeat in repeats)}")
        return (*said, *(f"{arm}, {why}" for arm, why in self.probed if arm in among))

    def keys(self, among: Collection[str]) -> list[Key]:
        """Its members of these arms."""
        first = self.first
        return [(arm, first.task, first.prompt, repeat) for arm, repeat in self.members if arm in among]

    def side(self, shelf: Shelf, facts: Facts, among: Collection[str]) -> Side | None:
        """The variant as it is shown beside these arms' other answers, None where none of them gave it; its grade is
        that of the first member that has one."""
        first, keys = self.first, self.keys(among)
        arms = dict.fromkeys([*(key[0] for key in keys), *(arm for arm, _ in self.probed if arm in among)])
        if not arms:
            return None
        return Side(
            who=self.who(among),
            arms=tuple(arms),
            excerpt=shelf.get(self.text),
            tokens=self.tokens,
            finish=first.finish,
            accepted=first.accepted,
            drafted=first.drafted,
            tokens_per_s=self.rate,
            failure=first.failure,
            grade=next((facts.grades[key] for key in keys if key in facts.grades), None),
        )


class Variants:
    """The distinct answers to each prompt, in the order in which they came."""

    def __init__(self, bases: Collection[str], facts: Facts, shelf: Shelf, *, redact: bool) -> None:
        self._bases, self._facts, self._shelf, self._redact = bases, facts, shelf, redact
        self._by_prompt: dict[tuple[str, str], dict[bytes, Variant]] = {}
        self._rates: dict[tuple[str, str], list[float]] = {}
        self._batches = BatchRates()
        self._in_batch: dict[tuple[str, str], set[Place]] = {}

    def add(self, answer: Answer) -> None:
        """Take note of one answer; its ids and, past the shelf's bound, its text are not kept."""
        variants = self._by_prompt.setdefault((answer.task, answer.prompt), {})
        mark = _fingerprint(answer)
        if mark not in variants:
            weight = self._times_shown(answer)
            text = self._shelf.put(answer.text, self._facts.first_divergence(answer), weight)
            variants[mark] = Variant(answer, text, self._redact)
        self._batches.add(answer)
        rate = decode_rate(answer)
        if answer.batch is not None and answer.probe is None:
            self._in_batch.setdefault((answer.task, answer.arm), set()).add(place_of(answer))
        elif rate is not None and answer.probe is None:
            self._rates.setdefault((answer.task, answer.arm), []).append(rate)
        variant = variants[mark]
        if answer.probe is None:
            variant.members.append((answer.arm, answer.repeat))
        else:
            variant.probed.append((answer.arm, _PROBES[answer.probe]))

    def _times_shown(self, answer: Answer) -> int:
        """How often the page shows this text: one that differs stands beside the base's, which is counted with it."""
        if answer.arm not in self._bases:
            return 2
        return 0 if self._facts.parts(answer) else 1

    def spread(self, task: str, arm: str) -> Spread | None:
        """How fast an arm was on a task, alone or in batches, None where that wasn't measured."""
        batches = (self._batches.rate(place) for place in self._in_batch.get((task, arm), ()))
        rates = self._rates.get((task, arm)) or [rate for rate in batches if rate is not None]
        if not rates:
            return None
        low, _, high = quantiles(rates, n=4) if len(rates) >= 4 else (None, None, None)
        return Spread(arm, len(rates), low, median(rates), high)

    def of(self, task: str, prompt: str) -> list[Variant]:
        return list(self._by_prompt.get((task, prompt), {}).values())


def _fingerprint(answer: Answer) -> bytes:
    """Equal for answers that a reader can't tell apart: text, ids, how it ended, why it isn't there."""
    said = hashlib.sha256(answer.text.encode("utf-8", "surrogatepass"))
    said.update(repr((answer.ids, answer.finish, answer.failure)).encode("utf-8", "surrogatepass"))
    return said.digest()
