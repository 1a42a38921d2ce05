"""What a run decodes, and in which order: prompt by prompt, arms in turn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from evals.engine.protocol import Build
from evals.messages import Message
from evals.types import Arm

Key = tuple[str, str, str, int, int, str | None]
"""`Answer.key`: arm, task, prompt, repeat, session, probe."""

_RESIDENT = 1.4
"""Bytes of memory an engine takes for each byte of its files, allowing for repacked weights and a KV cache."""


class Asked(msgspec.Struct, frozen=True):
    """One prompt to decode: its task and id, its text as rendered by the chat template, its budget in tokens.

    image: a PNG or JPEG file's bytes; the text has `IMAGE_TAG` where it belongs.
    messages: what the text was rendered from.
    """

    task: str
    prompt: str
    text: str
    max_new_tokens: int
    image: bytes | None = None
    messages: tuple[Message, ...] = ()

    @property
    def sha256(self) -> str:
        """Of the text and, where there is one, of the picture: answers are the same question's only if both are."""
        asked = hashlib.sha256(self.text.encode())
        if self.image is not None:
            asked.update(b"\0image\0" + hashlib.sha256(self.image).digest())
        return asked.hexdigest()


class Plan(msgspec.Struct, frozen=True):
    """What to decode. repeats: arm name → how often each prompt is decoded (1 where not given).

    heads: arm name → directory whose head the arm drafts with, where it isn't the model's own. state_probe,
    fresh_starts: see `evals.probes`.
    """

    model: Path
    arms: tuple[Arm, ...]
    repeats: Mapping[str, int]
    asked: tuple[Asked, ...]
    stop_ids: frozenset[int]
    heads: Mapping[str, Path] = {}
    state_probe: bool = False
    fresh_starts: int = 0

    def build(self, arm: Arm) -> Build:
        head = None if arm.method == "plain" else str(self.heads.get(arm.name, self.model))
        return Build(
            model=str(self.model),
            head=head,
            method=arm.method,
            k=arm.k,
            device=arm.device,
            properties=arm.properties,
            scheduler=arm.scheduler,
            stop_ids=tuple(sorted(self.stop_ids)),
        )


class Turn(msgspec.Struct, frozen=True):
    """One answer to get. session: which process of its arm gives it; probe: why it is asked again."""

    arm: Arm
    asked: Asked
    repeat: int = 0
    session: int = 0
    probe: Literal["state", "start"] | None = None

    @property
    def key(self) -> Key:
        return (self.arm.name, self.asked.task, self.asked.prompt, self.repeat, self.session, self.probe)


def turns(plan: Plan, sequential: bool) -> list[Turn]:
    """Prompt by prompt, repeat by repeat, arms in turn; which arm begins rotates, so that none is always first."""
    if sequential:
        return [
            Turn(arm, asked, repeat)
            for arm in plan.arms
            for asked in plan.asked
            for repeat in range(plan.repeats.get(arm.name, 1))
        ]
    planned: list[Turn] = []
    for index, asked in enumerate(plan.asked):
        for repeat in range(max((plan.repeats.get(arm.name, 1) for arm in plan.arms), default=0)):
            first = (index + repeat) % len(plan.arms)
            in_turn = (*plan.arms[first:], *plan.arms[:first])
            planned += [Turn(arm, asked, repeat) for arm in in_turn if repeat < plan.repeats.get(arm.name, 1)]
    return planned


def one_at_a_time(plan: Plan) -> bool:
    """Whether only one engine should be in memory at a time: off the CPU always, on it where memory is short."""
    if any(not arm.device.upper().startswith("CPU") for arm in plan.arms):
        return True
    weights = sum(file.stat().st_size for file in plan.model.glob("*.bin"))
    available: int = psutil.virtual_memory().available
    return weights * _RESIDENT * len(plan.arms) > available
