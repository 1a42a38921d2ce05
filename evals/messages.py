"""What is said to a model before it answers: messages with their roles, as a chat template or a server takes them."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


class Message(msgspec.Struct, frozen=True):
    """One message. An assistant's content is its answer as text, tool calls in the model's own syntax included."""

    role: Role
    content: str


class Chat(msgspec.Struct, frozen=True):
    """What is asked in one turn. tools: descriptions in OpenAI's form, for the template's `tools`.

    after: id of the prompt whose answer comes before this turn's messages, in the same conversation; None where the
    messages are the whole of it.
    """

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    after: str | None = None

    def canonical(self) -> str:
        """The chat as one text, equal for equal chats, where no template renders it."""
        return msgspec.json.encode([self.messages, self.tools], order="deterministic").decode()

    def digest(self) -> str:
        """SHA-256 of `canonical`."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()


def user(text: str) -> Chat:
    """One user turn."""
    return Chat(messages=(Message("user", text),))
