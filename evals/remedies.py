"""Remedies: blocked prompts decoded again under settings that keep the head and change the numerics. Measured only.

KV precision alone can decide whether a head is lossless. Each trial decodes plain (twice) and the arm under the same
changed settings, so that it can be graded and judged as any run; which trial would be served is `gate`'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from evals.arms import LABELS, MAX_K, ArmError, parse_property
from evals.bases import base_of
from evals.batches import load_suffix
from evals.decode import Decoding
from evals.plan import Plan
from evals.types import Answer, Arm

MAX_CHANGES = 8
EVERY = "*"
_EVERY_HEAD = re.compile(r"HEAD\s*=\s*\*")
"""In place of a head's name: each of the heads given, in turn."""


class RemedyError(ValueError):
    """A remedy out of form: says what was expected and found."""


class Remedy(msgspec.Struct, frozen=True):
    """What to change. properties: OpenVINO properties for target and draft; k: another K; head: another head's name, or
    `EVERY`."""

    text: str
    properties: dict[str, str] = {}
    k: int | None = None
    head: str | None = None


class OtherHead(msgspec.Struct, frozen=True):
    """A head of the same target that a remedy may name: its digest, and the directory to draft from."""

    digest: str
    path: Path


class Trial(msgspec.Struct, frozen=True):
    """One remedy tried. arms: plain and the arm, both under the remedy's settings; answers: plain's twice, the arm's
    once. refused: the engine's own words where it can't be built so (answers is empty then), else None.
    """

    remedy: Remedy
    arms: tuple[Arm, Arm]
    answers: tuple[Answer, ...]
    refused: str | None = None


def parse_remedy(text: str) -> Remedy:
    """KEY=VALUE[, KEY=VALUE …]: an OpenVINO property, K=NUMBER, HEAD=NAME, or HEAD=*. Raises RemedyError."""
    changes = [part.strip() for part in text.split(",")]
    properties: dict[str, str] = {}
    k: int | None = None
    head: str | None = None
    if len(changes) > MAX_CHANGES:
        raise RemedyError(
            f"remedy {text[:200]!r}: expected at most {MAX_CHANGES} changes, found {len(changes)}."
        )
    for change in changes:
        key, _, value = (part.strip() for part in change.partition("="))
        if key == "K":
            if not value.isascii() or not value.isdigit() or not 1 <= int(value[:9]) <= MAX_K:
                raise RemedyError(
                    f"remedy {text[:200]!r}: expected K=NUMBER from 1 to {MAX_K}, found {change[:40]!r}."
                )
            k = int(value)
        elif key == "HEAD" and value:
            head = value
        else:
            try:
                name, setting = parse_property(change)
            except ArmError as error:
                raise RemedyError(
                    f"remedy {text[:200]!r}: expected KEY=VALUE with an OpenVINO property, K=NUMBER or HEAD=NAME, "
                    f"found {change[:80]!r}."
                ) from error
            properties[name] = setting
    return Remedy(text=text, properties=properties, k=k, head=head)


def try_remedies(
    plan: Plan,
    arm: Arm,
    prompts: Collection[tuple[str, str]],
    remedies: Iterable[Remedy],
    *,
    in_force: Mapping[str, str] | None = None,
    heads: Mapping[str, OtherHead] | None = None,
    command: Sequence[str] | None = None,
) -> Iterator[Trial]:
    """Try remedies in order on (task, prompt) pairs of a plan; stop consuming at the first that is good enough.

    A remedy that changes nothing is passed over: settings that are in force already, the arm's own K, a head that
    isn't given.
    """
    asked = tuple(a for a in plan.asked if (a.task, a.prompt) in prompts)
    for remedy in (each for given in remedies for each in _each(given, heads or {})):
        changed = _changed(plan, arm, remedy, in_force or {}, heads or {})
        if changed is None or not asked:
            continue
        plain, other, path = changed
        trial = msgspec.structs.replace(
            plan,
            arms=(plain, other),
            repeats={plain.name: 2},
            asked=asked,
            heads={other.name: path},
            state_probe=False,
            fresh_starts=0,
        )
        with Decoding(trial, command=command) as decoding:
            answers = tuple(decoding)
        refused = next((a.failure.message for a in answers if a.failure and a.failure.stage == "build"), None)
        yield Trial(remedy=remedy, arms=(plain, other), answers=() if refused else answers, refused=refused)


def _each(remedy: Remedy, heads: Mapping[str, OtherHead]) -> Iterator[Remedy]:
    """The remedy, or one for every head given."""
    if remedy.head != EVERY:
        yield remedy
        return
    for name in heads:
        yield msgspec.structs.replace(
            remedy, text=_EVERY_HEAD.sub("HEAD=" + name.replace("\\", r"\\"), remedy.text), head=name
        )


def _changed(
    plan: Plan, arm: Arm, remedy: Remedy, in_force: Mapping[str, str], heads: Mapping[str, OtherHead]
) -> tuple[Arm, Arm, Path] | None:
    """Plain and the arm as the remedy makes them, and the head's directory; None where nothing would change."""
    properties = {**arm.properties, **remedy.properties}
    path, digest, name = plan.heads.get(arm.name, plan.model), arm.head_digest, arm.head
    if remedy.head is not None:
        if remedy.head not in heads:
            return None
        path, digest, name = heads[remedy.head].path, heads[remedy.head].digest, remedy.head
    k = remedy.k or arm.k
    now = {**in_force, **arm.properties}
    if (
        k == arm.k
        and digest == arm.head_digest
        and all(now.get(p) == v for p, v in remedy.properties.items())
    ):
        return None
    label = (
        f"{LABELS.get(arm.method, arm.method)}@{k}"
        + (f":{name}" if name else "")
        + load_suffix(arm.concurrency)
    )
    other = msgspec.structs.replace(
        arm, name=label, k=k, properties=properties, head=name, head_digest=digest
    )
    plain = base_of(plan.arms, arm)
    assert plain is not None
    return msgspec.structs.replace(plain, properties=properties), other, path
