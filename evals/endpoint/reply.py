"""A reply, put together from the messages of a server, and the answer that it makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from evals.endpoint.http import Refusal
from evals.endpoint.wire import Choice, Delta, Message, TokenLogprob, Usage, decode_message
from evals.engine.child import clean
from evals.types import Answer, Finish, IdsFrom

DONE = "[DONE]"
SPARE_EVENTS = 10_000
"""Events beyond the budget that a stream may have: role, finish and usage messages, keep-alives, a long overrun."""

_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length", "eos": "stop", "tool_calls": "stop"}
_decode = decode_message


class Reply(msgspec.Struct, frozen=True):
    """What a server answered. Fields mean what they mean in `evals.types.Answer`; times in seconds.

    text holds the thinking, in <think> tags, and calls of tools too, where the server delivers them apart. logprobs: by
    token, where asked.
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
        self._calls: dict[int, list[str]] = {}
        self._ids: list[int] = []
        self._ids_told = True
        self._logprobs: list[TokenLogprob] = []
        self._first = self._last = 0.0
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._accepted: int | None = None
        self._drafted: int | None = None
        self._server: dict[str, str] = {}
        self._cuts: list[int] = []

    @property
    def pieces(self) -> int:
        return len(self._cuts)

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
        """Take a reply that came whole. Raises Refusal."""
        try:
            text = body.decode()
        except UnicodeDecodeError as e:
            raise Refusal("malformed", f"a reply that is no UTF-8: {e}") from e
        self._take(text)
        if self._finish is None:
            raise Refusal("cut", "the reply has no finish reason")
        return self._reply(streamed=False)

    def _take(self, data: str) -> None:
        try:
            message = _decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as e:
            start = self._scrub(clean(data[:80]))
            raise Refusal(
                "malformed", f"expected a message of OpenAI's API, found {start!r}: {clean(str(e))}"
            ) from e
        if message.error is not None:
            told = self._scrub(clean(str(message.error)))[:300]
            raise Refusal("malformed", f"an error in the reply: {told}")
        for choice in message.choices or ():
            if choice.index == 0:
                self._choice(choice)
        self._account(message)

    def _choice(self, choice: Choice) -> None:
        said = choice.delta or choice.message or Delta(content=choice.text)
        thought = said.reasoning_content or said.reasoning
        for number, call in enumerate(said.tool_calls or ()):
            named = self._calls.setdefault(call.index if choice.delta is not None else number, ["", ""])
            if call.function is not None:
                named[0] += call.function.name or ""
                named[1] += call.function.arguments or ""
        if said.content or thought:
            now = time.monotonic()
            if not self.pieces:
                self._first = now
            self._last = now
            self._cuts.append(len(said.content or "") + len(thought or ""))
            if said.content:
                self._said.append(said.content)
            if thought:
                self._thought.append(thought)
        if choice.token_ids:
            self._ids += choice.token_ids
        elif said.content or thought:
            self._ids_told = False
        if choice.logprobs and choice.logprobs.content:
            self._logprobs += choice.logprobs.content
        if choice.finish_reason:
            self._finish = choice.finish_reason

    def _account(self, message: Message) -> None:
        if message.usage is not None:
            self._usage = message.usage
        if message.timings is not None and message.timings.draft_n is not None:
            self._drafted = message.timings.draft_n
            self._accepted = message.timings.draft_n_accepted
        if message.model and "model" not in self._server:
            self._server["model"] = short_name(message.model)
        if message.system_fingerprint and "system_fingerprint" not in self._server:
            self._server["system_fingerprint"] = clean(message.system_fingerprint)[:100]

    def _reply(self, *, streamed: bool) -> Reply:
        text = "".join(self._said)
        text += "".join(_as_text(name, arguments) for _, (name, arguments) in sorted(self._calls.items()))
        if self._thought:
            text = f"<think>{''.join(self._thought)}</think>{text}"
        assert self._finish is not None
        counted = self._accepted is not None and self._drafted is not None
        timed = streamed and self.pieces > 0
        told = bool(self._ids) and self._ids_told
        return Reply(
            text=self._scrub(text),
            finish=_FINISH.get(self._finish, "unknown"),
            cuts=tuple(self._cuts) if streamed else (),
            usage=self._usage,
            ids=tuple(self._ids) if told else (),
            ids_from="server" if told else None,
            accepted=self._accepted if counted else None,
            drafted=self._drafted if counted else None,
            ttft_s=self._first - self._began if timed else None,
            decode_s=self._last - self._first if timed and self.pieces > 1 else None,
            server=self._server | {"finish_reason": clean(self._finish)[:40]},
            logprobs=tuple(self._logprobs),
        )


def _as_text(name: str, arguments: str) -> str:
    """A call that came apart from the text, as Qwen's models write it."""
    named = msgspec.json.encode(name).decode()
    return f'<tool_call>\n{{"name": {named}, "arguments": {arguments or "{}"}}}\n</tool_call>'


def short_name(model: str) -> str:
    """A served model's name without the folders that some servers put before it."""
    return clean(model.replace("\\", "/").rstrip("/").rpartition("/")[2])[:200]
