"""What stands before a later turn of a conversation: the earlier turns and the arm's own answers to them.

Each arm goes on from what it said itself, as it would be served. So after a divergence later turns differ by their
context; the digest of the rendered prompt (`Answer.prompt_sha256`) tells which turns had the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import msgspec

from evals.engine.child import Child
from evals.engine.renderer import FromRenderer, Template, Text
from evals.messages import Chat, Message
from evals.plan import Asked, Key, Plan, Turn
from evals.types import Answer, Failure

RENDERER: tuple[str, ...] = (sys.executable, "-P", "-m", "evals.engine.renderer")
_RENDER_S = 180.0


class Conversations:
    """Completes later turns of a plan's conversations from the answers it was told. Use as a context manager.

    Nothing is started for a plan without any. Only answers that a turn follows are kept.
    """

    def __init__(self, plan: Plan, *, command: Sequence[str] = RENDERER) -> None:
        self._plan = plan
        self._asked = {(asked.task, asked.prompt): asked for asked in plan.asked}
        self._followed = {(asked.task, asked.after) for asked in plan.asked if asked.after is not None}
        self._said: dict[Key, str | None] = {}
        self._child = Child(command)
        self._texts: dict[str, str] = {}

    def __enter__(self) -> Conversations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the renderer. Safe to call twice."""
        self._child.kill()

    def tell(self, answers: Iterable[Answer]) -> None:
        """Answers that are there; those that no turn follows are passed over."""
        for answer in answers:
            if (answer.task, answer.prompt) in self._followed:
                self._said[answer.key] = None if answer.failure is not None else answer.text

    def complete(self, turn: Turn) -> Turn | Failure:
        """The turn with all that stands before it: `asked.messages` and `asked.text` are whole.

        A Failure where an earlier turn has no answer, or the template fails on what was said.
        """
        if turn.asked.after is None:
            return turn
        messages = self._history(turn)
        if messages is None:
            return Failure(
                kind="error", message="not asked: a turn before it in the conversation has no answer"
            )
        chat = Chat(messages=messages, tools=turn.asked.tools)
        text = self._render(chat) if self._plan.renders else chat.canonical()
        if isinstance(text, Failure):
            return text
        asked = msgspec.structs.replace(turn.asked, text=text, messages=messages)
        return msgspec.structs.replace(turn, asked=asked)

    def _history(self, turn: Turn) -> tuple[Message, ...] | None:
        asked: Asked = turn.asked
        messages = asked.messages
        while asked.after is not None:
            said = self._said.get(
                (turn.arm.name, asked.task, asked.after, turn.repeat, turn.session, turn.probe)
            )
            if said is None:
                return None
            asked = self._asked[asked.task, asked.after]
            messages = (*asked.messages, Message("assistant", said), *messages)
        return messages

    def _render(self, chat: Chat) -> str | Failure:
        known = self._texts.get(chat.digest())  # arms that agree ask for the same
        if known is not None:
            return known
        if not self._child.alive:
            self._child.start()
            self._child.send(msgspec.json.encode(Template(str(self._plan.model))))
        self._child.send(msgspec.json.encode(chat))
        line = self._child.receive("decode", _RENDER_S)
        if isinstance(line, Failure):
            return msgspec.structs.replace(line, message=f"rendering the conversation: {line.message}")
        try:
            reply = msgspec.json.decode(line, type=FromRenderer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._child.garbled("decode", str(error))
        if not isinstance(reply, Text):
            return Failure(kind="error", message=reply.message)
        self._texts = {**dict(list(self._texts.items())[-15:]), chat.digest(): reply.text}
        return reply.text
