"""A served arm's seat: started, asked and ended like an engine's process, though it only holds connections.

`ask` may be called by many threads at once, which is how several requests are in flight.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from evals.endpoint.acceptance import MetricsSource, Source, share_out
from evals.endpoint.address import EndpointError, origin
from evals.endpoint.http import Http, Refusal
from evals.endpoint.reply import Assembly, Reply, short_name
from evals.endpoint.switch import switch
from evals.endpoint.wire import Counts, decode_models
from evals.engine.process import OutOfTime, Patience
from evals.engine.protocol import IMAGE_TAG
from evals.messages import Message
from evals.plan import Asked
from evals.types import Endpoint, Failure

HEALTH_S = 60.0
"""How long a server may take to answer at all, where nobody has just started it."""

SWITCHED_S = 600.0
POLL_S = 0.25
LOOK_S = 10.0
SEED = 1
NO_LIST = ("HTTP 404", "HTTP 405", "HTTP 501")
BEAT_S = 0.5


class EndpointSeat:
    """One arm of a server.

    arm: what the switch command is told, `plain` or `spec`. source: where acceptance is told if not in the replies
    (default: the counters at metrics_url, by default the server's /metrics). encode: the tokenizer that reads a text
    again where the server tells no ids.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        arm: str,
        *,
        patience: Patience | None = None,
        source: Source | None = None,
        switch_command: str | None = None,
        encode: Callable[[str], tuple[int, ...]] | None = None,
        metrics_url: str | None = None,
    ) -> None:
        self._endpoint, self._arm, self._encode = endpoint, arm, encode
        self._metrics_url = metrics_url or f"{origin(endpoint.url)}/metrics"
        self._patience = patience or Patience()
        self._given_source, self._switch_command = source, switch_command
        self._http: Http | None = None
        self._elsewhere: Http | None = None
        self._source: Source | None = None
        self._model: str | None = None
        self._shown: str | None = None
        self._switched: Failure | None = None
        self._silence: float | None = None
        self._asking = 0
        self._crowded = False
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        return self._http is not None

    @property
    def switched(self) -> bool:
        return self._switch_command is not None

    @property
    def model(self) -> str | None:
        """The served model's name without its folders, once `ready`."""
        return self._shown

    def start(self) -> None:
        """Switch the server to this arm, where there is a command for that, and open the pool of connections."""
        self.kill()
        self._switched = None
        if self._switch_command is not None:
            self._switched = switch(self._switch_command, self._arm)
        self._http = metrics = Http()
        if origin(self._metrics_url) != origin(self._endpoint.url):  # the key stays with the server
            self._elsewhere = metrics = Http(with_key=False)
        self._source = self._given_source or MetricsSource(metrics, self._metrics_url)

    def ready(self, deadline: float | None = None) -> Failure | None:
        """Wait until the server lists its models; what went wrong, or None. OutOfTime when deadline passes.

        A server that has no such list (404, 405, 501) counts as up, and is asked for `--served-model` or for no name.
        """
        if self._switched is not None:
            return self._switched
        end = time.monotonic() + (HEALTH_S if self._switch_command is None else SWITCHED_S)
        while True:
            problem = self._look()
            if isinstance(self._source, MetricsSource):
                self._source.model = self.model
            if problem is None or problem.kind not in ("unreachable", "server_error", "rate_limited"):
                return problem
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise OutOfTime
            if now >= end:
                return problem
            time.sleep(POLL_S)

    def ask(
        self,
        asked: Asked,
        *,
        deadline: float | None = None,
        on_beat: Callable[[int], None] | None = None,
        whole: bool = False,
        raw: bool = False,
        top_logprobs: int | None = None,
    ) -> Reply | Failure:
        """Ask one question, greedily: its messages, which the server renders.

        whole: not streamed. raw: the rendered text, past the server's template. on_beat: told the pieces that came so
        far, at most twice a second.

        Raises OutOfTime when deadline (time.monotonic()) passes.
        """
        http = self._http
        if http is None:
            return Failure(kind="unreachable", message="the connection was closed")
        stream = self._endpoint.stream and not whole
        chat = self._endpoint.api == "chat" and not raw
        single = len(asked.messages) == 1 and asked.image is None and not asked.tools
        if not chat and not raw and not single:
            message = "pictures, tools and conversations need a chat (--api chat)"
            return Failure(kind="refused", message=message)
        body = self._body(asked, chat, raw, stream, top_logprobs)
        url = f"{self._endpoint.url}/{'chat/completions' if chat else 'completions'}"
        alone = self._enter()
        try:
            if alone and self._source is not None:
                self._source.before()
            reply = self._ask(http, url, body, asked.max_new_tokens, deadline, on_beat)
            counts = self._counts(reply, alone)
        except Refusal as refusal:
            return refusal.failure()
        finally:
            with self._lock:
                self._asking -= 1
        if counts is not None:
            reply = _counted(reply, counts)
        if reply.ids_from is None and self._encode is not None:
            reply = msgspec.structs.replace(reply, ids=self._encode(reply.text), ids_from="tokenizer")
        return reply

    def ask_all(self, asked: Sequence[Asked], *, deadline: float | None = None) -> list[Reply | Failure]:
        """Ask questions all at once, one result a question, in their order; what a counter or a log tells of all of
        them together is shared out by their tokens. Raises OutOfTime."""
        with self._lock:
            self._asking += 1  # so that none of them takes itself for alone
        try:
            if self._source is not None:
                self._source.before()
            with ThreadPoolExecutor(len(asked), thread_name_prefix="ask") as pool:
                asking = [pool.submit(self.ask, one, deadline=deadline) for one in asked]
                return self._together([one.result() for one in asking])
        finally:
            with self._lock:
                self._asking -= 1

    def _together(self, replies: list[Reply | Failure]) -> list[Reply | Failure]:
        whole = [reply for reply in replies if isinstance(reply, Reply) and reply.drafted is None]
        if self._source is None or len(whole) < len(replies):
            return replies
        billed = [reply.usage.completion_tokens if reply.usage else None for reply in whole]
        known = [tokens for tokens in billed if tokens is not None]
        counts = self._source.after(sum(known) if len(known) == len(whole) else None, len(whole))
        if counts is None:
            return replies
        weights = known if len(known) == len(whole) else [max(1, len(reply.text)) for reply in whole]
        shares = share_out(counts, weights)
        if shares is None:
            return replies
        return [_counted(reply, one) for reply, one in zip(whole, shares, strict=True)]

    def kill(self) -> None:
        """Close all connections; requests under way end as failures. The server itself stays as it is."""
        http, self._http = self._http, None
        if http is not None:
            http.close()
        if self._elsewhere is not None:
            self._elsewhere.close()
            self._elsewhere = None

    def _body(self, asked: Asked, chat: bool, raw: bool, stream: bool, top_logprobs: int | None) -> bytes:
        body: dict[str, Any] = {**self._endpoint.request, "max_tokens": asked.max_new_tokens}
        body |= {"temperature": 0, "seed": SEED, "stream": stream}
        if chat:
            body["messages"] = [_said(message, asked.image) for message in asked.messages]
        else:
            body["prompt"] = asked.text if raw else asked.messages[0].content
        if chat and asked.tools:
            body["tools"] = asked.tools
        if self._model is not None:
            body["model"] = self._model
        if stream:
            body["stream_options"] = {"include_usage": True}
        if top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": top_logprobs} if chat else {"logprobs": top_logprobs}
        return msgspec.json.encode(body)

    def _ask(
        self,
        http: Http,
        url: str,
        body: bytes,
        max_new_tokens: int,
        deadline: float | None,
        on_beat: Callable[[int], None] | None,
    ) -> Reply:
        silence = self._allowed_silence()
        longest = 0.0
        last = beat = time.monotonic()

        def on_piece(pieces: int) -> None:
            nonlocal last, longest, beat
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            if on_beat is not None and now - beat >= BEAT_S:
                beat = now
                on_beat(pieces)

        with http.post(url, body, silence, deadline) as answering:
            last = answering.began
            assembly = Assembly(last, http.scrub)
            if answering.streams:
                reply = assembly.stream(answering.events(), max_new_tokens, on_piece)
            else:
                reply = assembly.whole(answering.whole())
                longest = time.monotonic() - answering.began
                reply = msgspec.structs.replace(reply, pause_s=longest)
        self._silence = max(self._silence or 0.0, longest)
        return reply

    def _allowed_silence(self) -> float:
        if self._silence is None:
            return self._patience.first_s
        return max(self._patience.least_s, self._patience.factor * self._silence)

    def _enter(self) -> bool:
        """Count a request in; whether it is the only one."""
        with self._lock:
            self._asking += 1
            self._crowded = self._asking > 1
            return not self._crowded

    def _counts(self, reply: Reply, alone: bool) -> Counts | None:
        """What the source says of a reply that doesn't say it itself; None unless no other request came meanwhile."""
        if reply.drafted is not None or self._source is None:
            return None
        with self._lock:
            alone = alone and not self._crowded
        billed = reply.usage.completion_tokens if reply.usage else None
        return self._source.after(billed) if alone else None

    def _look(self) -> Failure | None:
        """Ask for the models once, and take the name to ask for from them."""
        assert self._http is not None
        url = f"{self._endpoint.url}/models"
        try:
            listed = decode_models(self._http.get(url, LOOK_S))
        except Refusal as refusal:
            if refusal.kind in ("refused", "server_error") and refusal.message.startswith(NO_LIST):
                self._model = self._endpoint.model
                self._shown = None if self._model is None else short_name(self._model)
                return None
            return msgspec.structs.replace(refusal.failure(), stage="build")
        except (msgspec.DecodeError, RecursionError, UnicodeError) as e:
            return Failure(kind="not_api", message=f"{url}: expected a list of models: {e}", stage="build")
        scrub = self._http.scrub
        names = [model.id for model in listed.data or () if model.id]
        wanted = self._endpoint.model
        if wanted is not None and names and wanted not in names and wanted not in map(short_name, names):
            found = ", ".join(short_name(scrub(n)) for n in names[:5])
            message = f"expected the model {wanted!r} on the server, found: {found}"
            return Failure(kind="refused", message=message, stage="build")
        matching = [n for n in names if wanted in (n, short_name(n))]
        offered = [model.id for model in listed.data or () if model.id and model.loaded] or names
        self._model = matching[0] if matching else wanted or (offered[0] if offered else None)
        self._shown = None if self._model is None else short_name(scrub(self._model))
        return None


def _counted(reply: Reply, counts: Counts) -> Reply:
    return msgspec.structs.replace(reply, accepted=counts.accepted, drafted=counts.drafted)


def _said(message: Message, image: bytes | None) -> dict[str, Any]:
    """A message as the API takes it; the picture goes to the place that is kept for it. A tool's message must name a
    call: the ids of calls aren't kept, so it is one for all."""
    text = message.content.replace(IMAGE_TAG, "")
    said: dict[str, Any] = {"role": message.role, "content": text}
    if image is not None and IMAGE_TAG in message.content:
        said["content"] = [_picture(image), {"type": "text", "text": text}]
    if message.role == "tool":
        said["tool_call_id"] = "call_1"
    return said


def _picture(image: bytes) -> dict[str, Any]:
    kind = "png" if image.startswith(b"\x89PNG") else "jpeg"
    url = f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def look_at(seats: Mapping[str, EndpointSeat]) -> None:
    """Make sure, before a run is begun, that the servers of these arms are there. Raises EndpointError.

    One that has to be switched isn't: that would start it once more.
    """
    for arm, seat in seats.items():
        if seat.switched:
            continue
        seat.start()
        try:
            problem = seat.ready()
        finally:
            seat.kill()
        if problem is not None:
            raise EndpointError(f"the server of the arm {arm} can't be asked: {problem.message}.")
