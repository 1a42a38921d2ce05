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


class Counts(msgspec.Struct, frozen=True):
    """Tokens accepted of those drafted."""

    accepted: int
    drafted: int


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
    """Chat has `content`; completions, if it doesn't do as chat does, three lists of one length (vLLM)."""

    content: list[TokenLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None

    def entries(self) -> list[TokenLogprob]:
        if self.content or not (self.tokens and self.token_logprobs and self.top_logprobs):
            return self.content or []
        return [
            TokenLogprob(token, logprob, top_logprobs=[Top(t, value) for t, value in (top or {}).items()])
            for token, logprob, top in zip(self.tokens, self.token_logprobs, self.top_logprobs, strict=False)
        ]


class Function(msgspec.Struct, frozen=True):
    """arguments: JSON as a text (a piece of it in a stream); some servers send the object itself."""

    name: str | None = None
    arguments: Any = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call, or in a stream a part of one: those of one index belong together, unless their ids differ."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Part(msgspec.Struct, frozen=True):
    """A part of a content that comes as a list."""

    text: str | None = None


class Delta(msgspec.Struct, frozen=True):
    """What one message says: `reasoning_content` (or `reasoning`) is the thinking, where the server splits it off.
    function_call: the one call of older servers."""

    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None

    def said(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""

    def thought(self) -> str:
        return self.reasoning_content or (self.reasoning if isinstance(self.reasoning, str) else "")


class Choice(msgspec.Struct, frozen=True):
    """Chat has `delta` in a stream and `message` in a whole reply; completions has `text` in both."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: Any = None
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None
    """vLLM's, where `return_token_ids` asks for them."""


class Message(msgspec.Struct, frozen=True):
    """One event of a stream, or a whole reply."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Any = None
    """llama.cpp's own, with `draft_n` and `draft_n_accepted`."""
    metrics: Any = None
    """vLLM's, where it was started with --per-request-spec-decode-metrics."""
    model: Any = None
    system_fingerprint: Any = None
    error: Any = None

    def counts(self) -> Counts | None:
        """Drafts as the reply itself tells them; None where it doesn't in both numbers."""
        ours = self.metrics.get("speculative_decoding") if isinstance(self.metrics, dict) else None
        for told, drafted, accepted in (
            (self.timings, "draft_n", "draft_n_accepted"),
            (ours, "num_draft_tokens", "num_accepted_draft_tokens"),
        ):
            if isinstance(told, dict) and _is_count(told.get(drafted)) and _is_count(told.get(accepted)):
                return Counts(accepted=told[accepted], drafted=told[drafted])
        return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40


class Model(msgspec.Struct, frozen=True):
    """status: whether it is in memory, where a server lists what it could load too (transformers' serve, llama.cpp
    as a router)."""

    id: str = ""
    owned_by: str | None = None
    status: Any = None

    @property
    def loaded(self) -> bool:
        return isinstance(self.status, dict) and self.status.get("value") == "loaded"


class Models(msgspec.Struct, frozen=True):
    """GET /models."""

    data: list[Model] | None = None


decode_message = msgspec.json.Decoder(Message).decode
decode_models = msgspec.json.Decoder(Models).decode
