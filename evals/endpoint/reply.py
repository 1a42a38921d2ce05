"""A reply, put together from the messages of a server, and the answer that it makes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from evals.endpoint.http import Refusal
from evals.endpoint.wire import (
    Choice,
    Counts,
    Delta,
    Function,
    Message,
    TokenLogprob,
    ToolCall,
    Usage,
    decode_message,
)
from evals.engine.child import clean
from evals.types import Answer, Finish, IdsFrom

DONE = "[DONE]"
SPARE_EVENTS = 10_000
"""Events beyond the budget that a stream may have: role, finish and usage messages, keep-alives, a long overrun."""

MAX_CALLS = 1000
NO_TEXT = "told without a text"

_FINISH: dict[str, Finish] = {
    **dict.fromkeys(
        ("stop", "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls", "tool_use"), "stop"
    ),
    "function_call": "stop",
    **dict.fromkeys(("length", "max_tokens", "max_length"), "length"),
}
"""What servers call it; any other reason is unknown."""

BROKEN = frozenset({"abort", "aborted", "error", "cancelled", "canceled", "network_error"})
"""Finish reasons that say that the answer isn't one."""

_decode = decode_message


class Reply(msgspec.Struct, frozen=True):
    """What a server answered. Fields mean what they mean in `evals.types.Answer`; times in seconds.

    text holds the thinking, in <think> tags, and calls of tools too, where the server delivers them apart. pause_s: the
    longest time without a piece after the first one. logprobs: by token, where asked.
    """

    text: str
    finish: Finish
    cuts: tuple[int, ...]
    usage: Usage | None
    ids: tuple[int, ...]
    ids_from: IdsFrom | None
    accepted: int | None
    drafted: int | None
    ttft_s: float | None
    decode_s: float | None
    pause_s: float | None
    server: dict[str, str]
    logprobs: tuple[TokenLogprob, ...] = ()

    def fill(self, bare: Answer) -> Answer:
        """The answer that this reply is."""
        usage = self.usage
        return msgspec.structs.replace(
            bare,
            prompt_tokens=(usage.prompt_tokens if usage else None) or 0,
            ids=self.ids,
            ids_from=self.ids_from,
            text=self.text,
            finish=self.finish,
            accepted=self.accepted,
            drafted=self.drafted,
            reported_tokens=usage.completion_tokens if usage else None,
            ttft_s=self.ttft_s,
            decode_s=self.decode_s,
            pause_s=self.pause_s,
            cuts=self.cuts,
            usage_fault=usage.contradiction() if usage else "",
            server=self.server,
        )


class Assembly:
    """Messages put together into a reply. began: time.monotonic() at the request."""

    def __init__(self, began: float, scrub: Callable[[str], str]) -> None:
        self._began, self._scrub = began, scrub
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}
        self._ids: list[int] = []
        self._ids_told = True
        self._logprobs: list[TokenLogprob] = []
        self._first = self._last = self._pause = 0.0
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._counts: Counts | None = None
        self._server: dict[str, str] = {}
        self._cuts: list[int] = []
        self.pieces = 0
        """Messages so far that said something: text, thinking or a part of a call."""

    def stream(self, events: Iterable[str], max_new_tokens: int, on_piece: Callable[[int], None]) -> Reply:
        """Take a stream to its end. Raises Refusal: cut where it ends without a finish reason, malformed."""
        done = False
        for number, data in enumerate(events):
            if data == DONE:
                done = True
                break
            if number > 4 * max_new_tokens + SPARE_EVENTS:
                raise Refusal(
                    "malformed", f"a stream of more than {number} events for {max_new_tokens} tokens"
                )
            self._take(data)
            on_piece(self.pieces)
        if self._finish is None:
            how = "says that it is done" if done else "ends"
            raise Refusal("cut", f"the stream {how} after {self.pieces} pieces without a finish reason")
        return self._reply(streamed=True)

    def whole(self, body: bytes) -> Reply:
        """Take a reply that came whole: a message, or a stream that isn't said to be one, which has no times then.
        Raises Refusal."""
        try:
            text = body.decode()
        except UnicodeDecodeError as e:
            raise Refusal("malformed", f"a reply that is no UTF-8: {e}") from e
        start = text.lstrip()
        if start.startswith("<"):
            raise Refusal("not_api", f"a page where JSON was expected: {clean(self._scrub(start)[:80])!r}")
        if start.startswith(("data:", "event:")):
            lines = (
                line.removeprefix("data:").strip() for line in start.splitlines() if line.startswith("data:")
            )
            for data in itertools.takewhile(lambda data: data != DONE, lines):
                self._take(data)
        else:
            self._take(text)
        if self._finish is None:
            raise Refusal("cut", "the reply has no finish reason")
        return self._reply(streamed=False)

    def _mark(self) -> None:
        now = time.monotonic()
        if not self.pieces:
            self._first = now
        else:
            self._pause = max(self._pause, now - self._last)
        self._last = now
        self.pieces += 1

    def _take(self, data: str) -> None:
        try:
            message = _decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as e:
            start = clean(self._scrub(data)[:80])
            raise Refusal(
                "malformed",
                f"expected a message of OpenAI's API, found {start!r}: {clean(self._scrub(str(e)))}",
            ) from e
        if message.error:
            told = clean(self._scrub(_error_text(message.error))[:300])
            raise Refusal("malformed", f"an error in the reply: {told}")
        for choice in message.choices or ():
            if not choice.index:
                self._choice(choice)
        self._account(message)

    def _choice(self, choice: Choice) -> None:
        delta = choice.delta or choice.message or Delta(content=choice.text)
        said, thought = delta.said(), delta.thought()
        for call in delta.tool_calls or ():
            self._call(call, parts=choice.delta is not None)
        if delta.function_call is not None:
            self._call(ToolCall(index=0, function=delta.function_call), parts=choice.delta is not None)
        if said or thought:
            self._cuts.append(len(said) + len(thought))
            self._said.append(said)
            self._thought.append(thought)
        if said or thought or delta.tool_calls or delta.function_call:
            self._mark()
        if choice.token_ids:
            self._ids += choice.token_ids
        elif said or thought:
            self._ids_told = False
        if choice.logprobs:
            self._logprobs += choice.logprobs.entries()
        if choice.finish_reason:
            reason = choice.finish_reason
            self._finish = self._scrub(reason) if isinstance(reason, str) else NO_TEXT

    def _call(self, call: ToolCall, *, parts: bool) -> None:
        """Take a call, or a part of one. Where a stream gives no index, or one index to all, its ids and names tell
        calls apart."""
        function = call.function or Function()
        last = self._latest.get(call.index)
        other = last is not None and (
            (call.id and last.id and call.id != last.id) or (call.index is None and function.name)
        )
        if last is None or other or not parts:
            if len(self._calls) == MAX_CALLS:
                raise Refusal("malformed", f"a reply of more than {MAX_CALLS} calls of tools")
            last = _Call()
            self._calls.append(last)
            self._latest |= {call.index: last, None: last}
        last.id = call.id or last.id
        last.name += function.name or ""
        told = function.arguments
        last.arguments += told if isinstance(told, str) else _json(told) if told is not None else ""

    def _account(self, message: Message) -> None:
        if message.usage is not None:
            self._usage = message.usage
        self._counts = message.counts() or self._counts
        for key in ("model", "system_fingerprint"):
            told = getattr(message, key)
            if told and isinstance(told, str) and key not in self._server:
                told = self._scrub(told)
                self._server[key] = short_name(told) if key == "model" else clean(told[:100])

    def _reply(self, *, streamed: bool) -> Reply:
        text = "".join(self._said)
        text += "".join(call.as_text() for call in self._calls)
        if thought := "".join(self._thought):
            text = f"<think>{thought}</think>{text}"
        assert self._finish is not None
        if self._finish in BROKEN:
            raise Refusal("cut", f"the server gave the reply up (finish reason {clean(self._finish)!r})")
        timed = streamed and self.pieces > 0
        told = bool(self._ids) and self._ids_told
        return Reply(
            text=self._scrub(text),
            finish=_FINISH.get(self._finish, "unknown"),
            cuts=tuple(self._cuts) if streamed else (),
            usage=self._usage,
            ids=tuple(self._ids) if told else (),
            ids_from="server" if told else None,
            accepted=self._counts.accepted if self._counts else None,
            drafted=self._counts.drafted if self._counts else None,
            ttft_s=self._first - self._began if timed else None,
            decode_s=self._last - self._first if timed and self.pieces > 1 else None,
            pause_s=self._pause if timed and self.pieces > 1 else None,
            server=self._server | {"finish_reason": clean(self._finish[:40])},
            logprobs=tuple(self._logprobs),
        )


class _Call:
    """A call that comes apart from the text, as far as it has come."""

    def __init__(self) -> None:
        self.id = self.name = self.arguments = ""

    def as_text(self) -> str:
        """As Qwen's models write it; a closing tag inside an argument is escaped as JSON allows."""
        arguments = (self.arguments.strip() or "{}").replace("</tool_call>", "<\\/tool_call>")
        return f'<tool_call>\n{{"name": {_json(self.name)}, "arguments": {arguments}}}\n</tool_call>'


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError as e:
        raise Refusal("malformed", "a call's arguments nested too deep") from e


def _error_text(error: Any) -> str:
    """What an error says: a text, or an object with one as its `message`."""
    told = error.get("message") if isinstance(error, dict) else error
    return told if isinstance(told, str) else NO_TEXT


def short_name(model: str) -> str:
    """A served model's name without the folders that some servers put before it."""
    return clean(model.replace("\\", "/").rstrip("/").rpartition("/")[2])[:200]
