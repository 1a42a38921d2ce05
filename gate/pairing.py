"""Which parts of two runs are about the same thing, and why the rest isn't.

An arm is paired with the arm of its name, method and K; a task with the same files; a prompt that was rendered to the
same text with the same budget; a case with itself. What has no partner is named with the reason.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from evals.types import Answer, Arm, Grade, Manifest, Outcome

Place = tuple[str, str, str]
"""arm, task, prompt"""


class CompareError(ValueError):
    """Two runs that have nothing to compare: expected, found, what to do."""


class Facts(msgspec.Struct, frozen=True):
    """What pairing needs of an answer; its text is not kept."""

    prompt_sha256: str
    max_new_tokens: int
    text: bytes
    accepted: int | None
    drafted: int | None
    failure: str | None


def pair_arms(a: Manifest, b: Manifest, unpaired: list[str]) -> dict[str, tuple[Arm, Arm]]:
    ours, theirs = ({arm.name: arm for arm in m.arms} for m in (a, b))
    paired = {}
    for name in [*ours, *(n for n in theirs if n not in ours)]:
        one, two = ours.get(name), theirs.get(name)
        if one is None or two is None:
            unpaired.append(f"arm {name}: only in run {'A' if one else 'B'}")
        elif (one.method, one.k) != (two.method, two.k):
            unpaired.append(
                f"arm {name}: {one.method} with K = {one.k} in run A, {two.method} with K = {two.k} in run B"
            )
        else:
            paired[name] = (one, two)
    if not paired:
        raise CompareError(f"expected two runs with an arm in common, found none: {'; '.join(unpaired)}")
    return paired


def pair_tasks(a: Manifest, b: Manifest, unpaired: list[str]) -> frozenset[str]:
    paired = set()
    for name in [*a.tasks, *(n for n in b.tasks if n not in a.tasks)]:
        if name not in a.tasks or name not in b.tasks:
            unpaired.append(f"task {name}: only in run {'A' if name in a.tasks else 'B'}")
        elif a.tasks[name] != b.tasks[name]:
            unpaired.append(
                f"task {name}: its files differ (digest {a.tasks[name][:12]} in run A, {b.tasks[name][:12]} in run B)"
            )
        else:
            paired.add(name)
    if not paired:
        raise CompareError(f"expected two runs with a task in common, found none: {'; '.join(unpaired)}")
    return frozenset(paired)


def facts(answers: Iterable[Answer], arms: Mapping[str, object], tasks: frozenset[str]) -> dict[Place, Facts]:
    """The first answer of each arm to each prompt."""
    found: dict[Place, Facts] = {}
    for answer in answers:
        place = (answer.arm, answer.task, answer.prompt)
        if answer.repeat or answer.probe or answer.arm not in arms or answer.task not in tasks:
            continue
        found.setdefault(
            place,
            Facts(
                prompt_sha256=answer.prompt_sha256,
                max_new_tokens=answer.max_new_tokens,
                text=hashlib.sha256(answer.text.encode("utf-8", "surrogatepass")).digest(),
                accepted=answer.accepted,
                drafted=answer.drafted,
                failure=answer.failure.kind if answer.failure else None,
            ),
        )
    return found


def pair_places(a: dict[Place, Facts], b: dict[Place, Facts], unpaired: list[str]) -> dict[Place, None]:
    """Places with an answer to the same question in both runs, in run A's order."""
    paired: dict[Place, None] = {}
    for place in [*a, *(p for p in b if p not in a)]:
        one, two = a.get(place), b.get(place)
        where = "{1}/{2} {0}".format(*place)
        if one is None or two is None:
            unpaired.append(f"{where}: answered only in run {'A' if one else 'B'}")
        elif one.prompt_sha256 != two.prompt_sha256:
            unpaired.append(
                f"{where}: the prompt was another text (its wording or the chat template changed)"
            )
        elif one.max_new_tokens != two.max_new_tokens:
            unpaired.append(
                f"{where}: budget of {one.max_new_tokens} tokens in run A, {two.max_new_tokens} in run B"
            )
        elif one.failure or two.failure:
            words = [f"{f.failure or 'answered'} in run {run}" for run, f in (("A", one), ("B", two))]
            unpaired.append(f"{where}: {', '.join(words)}")
        else:
            paired[place] = None
    return paired


def pair_cases(
    a: Iterable[Grade], b: Iterable[Grade], places: Mapping[Place, object], unpaired: list[str]
) -> dict[Place, dict[str, tuple[Outcome, Outcome]]]:
    """Case → outcome in both runs. Cases that trouble of a machine decided (infra) have no partner."""
    ours, theirs = _outcomes(a, places), _outcomes(b, places)
    paired: dict[Place, dict[str, tuple[Outcome, Outcome]]] = defaultdict(dict)
    for place in places:
        one, two = ours.get(place, {}), theirs.get(place, {})
        lacking = [
            c
            for c in [*one, *(c for c in two if c not in one)]
            if "infra" in (one.get(c, "infra"), two.get(c, "infra"))
        ]
        if lacking or not one:
            names = ", ".join(lacking[:3]) + (", …" if len(lacking) > 3 else "")
            unpaired.append("{1}/{2} {0}: not judged in both runs: ".format(*place) + (names or "any case"))
        paired[place] = {c: (one[c], two[c]) for c in one if c not in lacking}
    return paired


def _outcomes(grades: Iterable[Grade], places: Mapping[Place, object]) -> dict[Place, dict[str, Outcome]]:
    found: dict[Place, dict[str, Outcome]] = {}
    for grade in grades:
        place = (grade.arm, grade.task, grade.prompt)
        if grade.repeat == 0 and place in places:
            found.setdefault(place, {c.case: c.outcome for c in grade.cases})
    return found
