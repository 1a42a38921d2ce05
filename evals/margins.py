"""How near was the other arm's token? Rank and gap in plain's logits, beside the width noise measured on this build.

The replay runs in a child (`evals.engine.replayer`) on the graph that was served. No fixed epsilon: the yardstick is
how far the gap between the two best tokens moves when nothing but the width of a step changes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Self, TypeVar

import msgspec

from evals.conversation import Conversations
from evals.engine.child import Child, essence
from evals.engine.replay_protocol import FromReplayer, Load, Loaded, Measure, Measured, ReplayProblem
from evals.model_dir import ModelDir
from evals.plan import Plan, Turn
from evals.types import Answer, Failure, Margin

REPLAYER: tuple[str, ...] = (sys.executable, "-P", "-m", "evals.engine.replayer")

_T = TypeVar("_T", Loaded, Measured)

_LOAD_S = 1800.0
_MEASURE_S = 900.0


class Margins:
    """Margins of pairs (plain's answer, another arm's answer to the same prompt), one for each that parts by a token.

    Iterate over it once, as a context manager. Pairs that are identical, failed, or part where one side has no token
    are passed over, and so are prompts with a picture: the replay has no vision part, and turns of a conversation that
    had another context. earlier: plain's answers, which later turns of conversations go on from. `problem` says why
    margins are missing; nothing is raised for that.
    """

    def __init__(
        self,
        plan: Plan,
        model: ModelDir,
        pairs: Iterable[tuple[Answer, Answer]],
        *,
        earlier: Iterable[Answer] = (),
        command: Sequence[str] = REPLAYER,
    ) -> None:
        self._plan = plan
        self._target = model.target
        shown = {(asked.task, asked.prompt) for asked in plan.asked if asked.image is not None}
        parting = [
            (base, other)
            for base, other in pairs
            if base.prompt_sha256 == other.prompt_sha256 and first_difference(base, other) is not None
        ]
        self._pairs = [pair for pair in parting if (pair[0].task, pair[0].prompt) not in shown]
        self._child = Child(command)
        self._asked = {(asked.task, asked.prompt): asked for asked in plan.asked}
        self._arms = {arm.name: arm for arm in plan.arms}
        self._conversations = Conversations(plan)
        self._conversations.tell(earlier)
        self._ks = {arm.name: arm.k for arm in plan.arms}
        self.planned = len(self._pairs)
        self.problem: str | None = None
        if pictured := len(parting) - len(self._pairs):
            self.problem = f"{pictured} of prompts with a picture, which the replay can't be shown"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._conversations.close()
        self._child.kill()

    def __iter__(self) -> Iterator[Margin]:
        if not self._pairs:
            return
        try:
            self._child.start()
            if self._ask(self._load(), Loaded, _LOAD_S) is None:
                return
            for base, other in self._pairs:
                turn = self._conversations.complete(
                    Turn(self._arms[base.arm], self._asked[base.task, base.prompt])
                )
                if isinstance(turn, Failure):
                    self.problem = turn.message
                    continue
                order = self._measure(turn.asked.text, base, other)
                measured = self._ask(order, Measured, _MEASURE_S)
                if measured is not None:
                    yield _margin(other, measured)
                elif not self._child.alive:
                    return
        finally:
            self._child.kill()

    def _load(self) -> Load:
        arm = self._plan.arms[0]
        batch = arm.scheduler.get("max_num_batched_tokens", 4096)
        return Load(
            model=str(self._plan.model),
            target=self._target,
            device=arm.device,
            properties=arm.properties,
            batch=int(batch),
        )

    def _measure(self, text: str, base: Answer, other: Answer) -> Measure:
        return Measure(
            text=text,
            prompt_tokens=base.prompt_tokens,
            base_ids=base.ids,
            other_ids=other.ids,
            other_steps=other.steps,
            k=self._ks[other.arm],
        )

    def _ask(self, order: Load | Measure, kind: type[_T], limit_s: float) -> _T | None:
        self._child.send(msgspec.json.encode(order))
        line = self._child.receive("decode", limit_s)
        if isinstance(line, Failure):
            self.problem = line.message
            return None
        try:
            reply = msgspec.json.decode(line, type=FromReplayer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.problem = self._child.garbled("decode", str(error)).message
            return None
        if isinstance(reply, kind):
            return reply
        self.problem = (
            essence(reply.message) if isinstance(reply, ReplayProblem) else "the replay lost its place"
        )
        return None


def first_difference(base: Answer, other: Answer) -> int | None:
    """Index of the first differing token where both answers have one; None for equal, failed or merely cut answers."""
    if base.failure is not None or other.failure is not None:
        return None
    pairs = zip(base.ids, other.ids, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), None)


def _margin(other: Answer, measured: Measured) -> Margin:
    return Margin(
        arm=other.arm,
        task=other.task,
        prompt=other.prompt,
        repeat=other.repeat,
        token_index=measured.token_index,
        rank=measured.rank,
        gap=measured.gap,
        gap_at_verify_width=measured.gap_at_verify_width,
        movement=measured.movement,
        noise=measured.noise,
        source=measured.source,
        reproduced=measured.reproduced,
        rescored_max_gap=measured.rescored_max_gap,
        rescored_max_gap_at=measured.rescored_max_gap_at,
        rescored_max_rank=measured.rescored_max_rank,
    )
