"""What a run decodes, and in which order: prompt by prompt (or batch by batch), arms in turn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from evals.batches import Batch, batches
from evals.engine.protocol import Build
from evals.messages import Message
from evals.model_dir import HeadLayout
from evals.types import Arm, Method, Probe

Key = tuple[str, str, str, int, int, str | None]
"""`Answer.key`: arm, task, prompt, repeat, session, probe."""

_RESIDENT = 1.4
"""Bytes of memory an engine takes for each byte of its files, allowing for repacked weights and a KV cache."""


_FROM_A_DIRECTORY: frozenset[Method] = frozenset({"mtp", "control", "draft", "eagle3", "dflash"})
"""Methods whose drafts come from files: the others' come from the text, or there are none."""

_OWN_MODEL: frozenset[Method] = frozenset({"draft", "eagle3", "dflash"})
"""Methods whose directory in `Plan.heads` holds another model, not links to the target beside a head."""


class Asked(msgspec.Struct, frozen=True):
    """One prompt to decode: its task and id, its text as rendered by the chat template, its budget in tokens.

    image: a PNG or JPEG file's bytes; the text has `IMAGE_TAG` where it belongs.
    messages: what the text was rendered from. A later turn of a conversation, which comes `after` the answer to another
    prompt of its task, has no text in a plan and only its own messages: `evals.conversation` completes it when it is
    asked. tools: what the model may call, in OpenAI's form.
    """

    task: str
    prompt: str
    text: str
    max_new_tokens: int
    image: bytes | None = None
    messages: tuple[Message, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    after: str | None = None

    @property
    def sha256(self) -> str:
        """Of the text and, where there is one, of the picture: answers are the same question's only if both are."""
        asked = hashlib.sha256(self.text.encode())
        if self.image is not None:
            asked.update(b"\0image\0" + hashlib.sha256(self.image).digest())
        return asked.hexdigest()


class Plan(msgspec.Struct, frozen=True):
    """What to decode. repeats: arm name → how often each prompt is decoded (1 where not given).

    heads: arm name → directory whose head or model the arm drafts with, where it isn't the model's own head. layout:
    which head of the model's own directory is meant, where it has two. state_probe, fresh_starts: see `evals.probes`.
    renders: whether the model's template renders conversations; a server does that itself.
    """

    model: Path
    arms: tuple[Arm, ...]
    repeats: Mapping[str, int]
    asked: tuple[Asked, ...]
    stop_ids: frozenset[int]
    heads: Mapping[str, Path] = {}
    layout: HeadLayout | None = None
    state_probe: bool = False
    fresh_starts: int = 0
    renders: bool = True

    def build(self, arm: Arm) -> Build:
        head = str(self.heads.get(arm.name, self.model)) if arm.method in _FROM_A_DIRECTORY else None
        return Build(
            model=str(self.model),
            head=head,
            method=arm.method,
            k=arm.k,
            device=arm.device,
            properties=arm.properties,
            scheduler=arm.scheduler,
            stop_ids=tuple(sorted(self.stop_ids)),
            max_ngram=arm.max_ngram,
            layout=self.layout,
        )


class Turn(msgspec.Struct, frozen=True):
    """One answer to get. session: which process of its arm gives it; probe: why it is asked again, or "fill" where it
    only keeps as many requests in flight as the arm has; batch: which of its arm's batches it is in."""

    arm: Arm
    asked: Asked
    repeat: int = 0
    session: int = 0
    probe: Probe | None = None
    batch: int | None = None

    @property
    def key(self) -> Key:
        return (self.arm.name, self.asked.task, self.asked.prompt, self.repeat, self.session, self.probe)


Round = tuple[Turn, ...]
"""Turns that are asked at once: one, or a whole batch in the order of its slots."""


def levels(plan: Plan) -> tuple[tuple[Arm, ...], ...]:
    """The arms by their number of requests in flight: only arms of one level are compared, and decoded in turn."""
    numbers = dict.fromkeys(arm.concurrency for arm in plan.arms)
    return tuple(tuple(arm for arm in plan.arms if arm.concurrency == n) for n in numbers)


def units(plan: Plan, arms: Sequence[Arm]) -> tuple[Batch, ...]:
    """What arms of one level are asked at once, in order: the plan's prompts one by one, or in batches."""
    arm = arms[0]
    if arm.concurrency == 1:
        return tuple(Batch((place,), 0) for place in range(len(plan.asked)))
    return batches(plan.asked, arm.concurrency, arm.batch_seed or 0)


def round_of(
    plan: Plan,
    arm: Arm,
    unit: Batch,
    index: int,
    *,
    repeat: int = 0,
    session: int = 0,
    probe: Probe | None = None,
) -> Round:
    """One of the arm's units, number `index`, as turns."""
    batch = None if arm.concurrency == 1 else index
    filled = len(unit.places) - unit.fill
    return tuple(
        Turn(arm, plan.asked[place], repeat, session, probe if slot < filled else "fill", batch)
        for slot, place in enumerate(unit.places)
    )


def rounds(plan: Plan, sequential: bool) -> list[Round]:
    """Level by level; in it unit by unit, repeat by repeat, arms in turn. Which arm begins rotates, so that none is
    always first."""
    return [found for arms in levels(plan) for found in _level(plan, arms, sequential)]


def _level(plan: Plan, arms: Sequence[Arm], sequential: bool) -> Iterator[Round]:
    repeats = {arm.name: plan.repeats.get(arm.name, 1) for arm in arms}
    numbered = list(enumerate(units(plan, arms)))
    if sequential:
        for arm in arms:
            for index, unit in numbered:
                for repeat in range(repeats[arm.name]):
                    yield round_of(plan, arm, unit, index, repeat=repeat)
        return
    for index, unit in numbered:
        for repeat in range(max(repeats.values())):
            first = (index + repeat) % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                if repeat < repeats[arm.name]:
                    yield round_of(plan, arm, unit, index, repeat=repeat)


def one_at_a_time(plan: Plan) -> bool:
    """Whether only one engine should be in memory at a time: off the CPU always, on it where memory is short; and where
    one server has to be switched from arm to arm."""
    if any(arm.endpoint is not None and arm.endpoint.switched for arm in plan.arms):
        return True
    here = msgspec.structs.replace(plan, arms=tuple(arm for arm in plan.arms if arm.endpoint is None))
    if any(not arm.device.upper().startswith("CPU") for arm in here.arms):
        return True
    if not here.arms:
        return False
    target = _weights(plan.model)
    drafts = {arm.name: _weights(plan.heads[arm.name]) for arm in here.arms if arm.method in _OWN_MODEL}
    most = max(sum(target + drafts.get(arm.name, 0) for arm in level) for level in levels(here))
    available: int = psutil.virtual_memory().available
    return most * _RESIDENT > available


def _weights(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.bin"))
