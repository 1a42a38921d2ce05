"""What OpenAI-compatible servers send, as far as it is used. Fields may lack or be null; more may come."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the server bills them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None

    def contradiction(self) -> str:
        """What in it can't be right, or ""."""
        parts = (self.prompt_tokens, self.completion_tokens, self.total_tokens)
        if None in parts or parts[0] + parts[1] == parts[2]:  # type: ignore[operator]
            return ""
        return f"{parts[0]} prompt and {parts[1]} completion tokens are billed as {parts[2]} in all"


class Timings(msgspec.Struct, frozen=True):
    """llama.cpp's own: how many tokens it drafted, and how many of them it accepted."""

    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class Top(msgspec.Struct, frozen=True):
    """A token that might have been taken."""

    token: str = ""
    logprob: float | None = None
    bytes: list[int] | None = None
    id: int | None = None


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token that was taken, and the likeliest ones at its place (itself among them)."""

    token: str = ""
    logprob: float | None = None
    bytes: list[int] | None = None
    id: int | None = None
    top_logprobs: list[Top] | None = None


class Logprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprob] | None = None


class Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call, or in a stream a part of one: those of one index belong together."""

    index: int = 0
    function: Function | None = None


class Delta(msgspec.Struct, frozen=True):
    """What one message says: `reasoning_content` (or `reasoning`) is the thinking, where the server splits it off."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, frozen=True):
    """Chat has `delta` in a stream and `message` in a whole reply; completions has `text` in both."""

    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None
    """vLLM's, where `return_token_ids` asks for them."""


class Message(msgspec.Struct, frozen=True):
    """One event of a stream, or a whole reply."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    error: Any = None


class Model(msgspec.Struct, frozen=True):
    id: str = ""
    owned_by: str | None = None


class Models(msgspec.Struct, frozen=True):
    """GET /models."""

    data: list[Model] | None = None


decode_message = msgspec.json.Decoder(Message).decode
decode_models = msgspec.json.Decoder(Models).decode
