"""One request to a server: its events as they come, and whatever went wrong by its name.

Everything that a server sends is bounded. Redirects aren't followed, proxies and .netrc of the environment are not
used, and the key goes to the address that the user named and nowhere else. A request is sent again only where no
byte of an answer has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from evals.endpoint.address import api_key
from evals.engine.child import OutOfTime, clean
from evals.types import Failure, FailureKind

if TYPE_CHECKING:
    import httpx2

MAX_EVENT = 1 << 20
"""Bytes of one event of a stream."""

MAX_REPLY = 64 << 20
"""Bytes of a whole reply, streamed or not."""

MAX_ERROR = 64 << 10
GZIP = b"\x1f\x8b"
CONNECT_S = 10.0
MAX_CONNECTIONS = 256
RETRIES = 2
RETRIED = frozenset({429, 502, 503, 504})
LONGEST_WAIT_S = 10.0
BEGAN = "gate.began"


class Refusal(Exception):
    """What became of a request in place of an answer."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message

    def failure(self) -> Failure:
        return Failure(kind=self.kind, message=self.message)


class Http:
    """A pool of connections to one server. Thread-safe: as many requests at a time as threads ask."""

    def __init__(self, *, with_key: bool = True) -> None:
        import ssl

        import httpx2

        self._key = api_key() if with_key else None
        headers = {"Accept-Encoding": "identity"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._client = httpx2.Client(
            headers=headers,
            trust_env=False,
            follow_redirects=False,
            verify=ssl.create_default_context(),
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS),
        )

    def close(self) -> None:
        """End all requests that are under way."""
        self._client.close()

    def scrub(self, text: str) -> str:
        """A server's text without the key, should it echo it."""
        return text.replace(self._key, "[key]") if self._key and len(self._key) >= 8 else text

    def get(self, url: str, timeout_s: float, limit: int = MAX_REPLY, *, inflate: bool = False) -> bytes:
        """The body of a GET. inflate: it may come gzipped, though that wasn't asked for. Raises Refusal."""
        with self._opened("GET", url, None, timeout_s, None, retries=0, inflate=inflate) as response:
            body = self._body(response, limit, end=time.monotonic() + timeout_s)
        return _inflated(body, limit) if inflate and body.startswith(GZIP) else body

    @contextmanager
    def post(
        self, url: str, body: bytes, silence_s: float, deadline: float | None, *, retries: int = RETRIES
    ) -> Iterator[Answering]:
        """Send a request; the answer is read from what this gives. Raises Refusal, and OutOfTime past the deadline."""
        with self._opened("POST", url, body, silence_s, deadline, retries=retries) as response:
            yield Answering(response, silence_s, deadline, self)

    @contextmanager
    def _opened(
        self,
        method: str,
        url: str,
        body: bytes | None,
        silence_s: float,
        deadline: float | None,
        *,
        retries: int,
        inflate: bool = False,
    ) -> Iterator[httpx2.Response]:
        import httpx2

        response = self._send(method, url, body, silence_s, deadline, retries, inflate)
        try:
            yield response
        except httpx2.TimeoutException as e:
            if _passed(deadline):
                raise OutOfTime from e
            raise Refusal("stalled", f"the server fell silent for {silence_s:.0f} s in mid-reply") from e
        except (httpx2.HTTPError, httpx2.StreamError, RuntimeError) as e:
            raise Refusal("cut", clean(self.scrub(f"the connection ended in mid-reply: {e}"))) from e
        finally:
            response.close()

    def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        silence_s: float,
        deadline: float | None,
        retries: int,
        inflate: bool,
    ) -> httpx2.Response:
        """Send, and send again a few times where nothing of an answer came."""
        for attempt in range(retries + 1):
            try:
                return self._try(method, url, body, silence_s, deadline, inflate)
            except _Again as again:
                after = 0.5 * 2**attempt if again.after_s is None else again.after_s
                wait = min(after, LONGEST_WAIT_S)
                if attempt == retries or _passed(deadline, wait):
                    raise again.refusal from again.__cause__
                time.sleep(wait)
        raise AssertionError("unreachable")

    def _try(
        self,
        method: str,
        url: str,
        body: bytes | None,
        silence_s: float,
        deadline: float | None,
        inflate: bool,
    ) -> httpx2.Response:
        import httpx2

        left = silence_s if deadline is None else max(0.001, min(silence_s, deadline - time.monotonic()))
        timeout = httpx2.Timeout(left, connect=min(CONNECT_S, left))
        headers = {"Content-Type": "application/json"} if body is not None else None
        try:
            request = self._client.build_request(
                method,
                url,
                content=body,
                headers=headers,
                timeout=timeout,
                extensions={BEGAN: time.monotonic()},
            )
            response = self._client.send(request, stream=True)
        except (httpx2.InvalidURL, UnicodeError) as e:
            raise Refusal("unreachable", clean(self.scrub(f"no address that can be asked: {e}"))) from e
        except httpx2.TimeoutException as e:
            if _passed(deadline):
                raise OutOfTime from e
            what = "no connection" if isinstance(e, httpx2.ConnectTimeout) else "no answer"
            raise Refusal("unreachable", f"{what} within {left:.0f} s") from e
        except httpx2.TransportError as e:
            if untrusted := _no_tls(e):
                raise Refusal("not_api", clean(self.scrub(untrusted))) from e
            refusal = Refusal("unreachable", clean(self.scrub(f"no answer: {e}")))
            raise _Again(refusal) from e
        except RuntimeError as e:  # the client was closed by another thread
            raise Refusal("unreachable", "the connection was closed") from e
        try:
            self._look(response, inflate, time.monotonic() + left)
        except BaseException:
            response.close()
            raise
        return response

    def _look(self, response: httpx2.Response, inflate: bool, end: float) -> None:
        """Raise what a reply's head already tells; an error's body is read until `end`."""
        import httpx2

        status = response.status_code
        if 300 <= status < 400:
            raise Refusal(
                "not_api", f"redirected (HTTP {status}): redirects aren't followed, name the server itself"
            )
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = self.scrub(response.headers.get("content-encoding", "identity")).strip().lower()
        if status == 200 and encoding not in ("", "identity") and not (inflate and encoding == "gzip"):
            raise Refusal("malformed", f"compressed ({clean(encoding[:40])}) though identity was asked for")
        if status == 200 and not kind.endswith("html"):
            return
        try:
            told = self._told(self._body(response, MAX_ERROR, whole=False, end=end))
        except (httpx2.HTTPError, Refusal):
            told = ""
        if status == 200:
            raise Refusal("not_api", f"HTML where JSON was expected: {told}")
        message = f"HTTP {status}{': ' if told else ''}{told}"
        if status == 429:
            raise _Again(Refusal("rate_limited", message), _after(response))
        if status >= 500:
            refusal = Refusal("server_error", message)
            raise _Again(refusal, _after(response)) if status in RETRIED else refusal
        raise Refusal("refused", message)

    def _body(
        self, response: httpx2.Response, limit: int, *, whole: bool = True, end: float | None = None
    ) -> bytes:
        """The bytes of a body. end: when (time.monotonic()) it has to be there, however steadily it drips."""
        data = bytearray()
        for chunk in response.iter_raw():
            data += chunk
            if len(data) > limit:
                if whole:
                    raise Refusal("malformed", f"a reply of more than {limit} bytes")
                break
            if _passed(end):
                raise Refusal("stalled", "the reply dripped in past its time")
        return bytes(data[:limit])

    def _told(self, body: bytes) -> str:
        """What an error's body says, in 300 characters."""
        text = self.scrub(body.decode("utf-8", "replace"))[:1000]
        return clean(" ".join(text.split()))[:300]


class Answering:
    """A reply whose head was fine, to be read either as events or as a whole."""

    def __init__(
        self, response: httpx2.Response, silence_s: float, deadline: float | None, http: Http
    ) -> None:
        self._response, self._silence_s, self._deadline, self._http = response, silence_s, deadline, http
        self._last = time.monotonic()
        self._size = 0

    @property
    def headers(self) -> Any:
        return self._response.headers

    @property
    def streams(self) -> bool:
        return str(self.headers.get("content-type", "")).lower().startswith("text/event-stream")

    @property
    def began(self) -> float:
        """time.monotonic() at the attempt that was answered: waits before it aren't the answer's."""
        return float(self._response.request.extensions[BEGAN])

    def whole(self) -> bytes:
        """The body. Raises Refusal, OutOfTime."""
        try:
            return self._http._body(self._response, MAX_REPLY, end=self._deadline)
        except Refusal as e:
            if _passed(self._deadline):
                raise OutOfTime from e
            raise

    def events(self) -> Iterator[str]:
        """The data of each event of a stream. Raises Refusal, OutOfTime."""
        import httpx2

        self._response.encoding = "utf-8"  # a stream of events is, whatever charset its head names
        source = httpx2.EventSource(cast("httpx2.Response", _Watched(self._response, self._watch)), MAX_EVENT)
        try:
            for event in source:
                self._last = time.monotonic()
                yield event.data
        except httpx2.SSEError as e:
            raise Refusal("malformed", clean(self._http.scrub(str(e)))) from e

    def _watch(self, chunk: str) -> None:
        """Called with whatever came, comments that only keep the connection alive included."""
        self._size += len(chunk)
        if self._size > MAX_REPLY:
            raise Refusal("malformed", f"a stream of more than {MAX_REPLY} bytes")
        if _passed(self._deadline):
            raise OutOfTime
        if time.monotonic() - self._last > self._silence_s:
            raise Refusal("stalled", f"no event for {self._silence_s:.0f} s in mid-reply")


class _Watched:
    """A response as `EventSource` reads it, with each piece shown to a watcher first."""

    def __init__(self, response: httpx2.Response, watch: Callable[[str], None]) -> None:
        self.headers, self.request = response.headers, response.request
        self._response, self._watch = response, watch

    def iter_text(self) -> Iterator[str]:
        for chunk in self._response.iter_text():
            self._watch(chunk)
            yield chunk


class _Again(Exception):
    """A refusal before the first byte of an answer, worth another try after so many seconds."""

    def __init__(self, refusal: Refusal, after_s: float | None = None) -> None:
        self.refusal, self.after_s = refusal, after_s


def _inflated(body: bytes, limit: int) -> bytes:
    """A gzipped body, bounded. Raises Refusal."""
    import zlib

    try:
        unpacking = zlib.decompressobj(wbits=31)
        data = unpacking.decompress(body, limit)
    except zlib.error as e:
        raise Refusal("malformed", f"gzip that can't be unpacked: {e}") from e
    if unpacking.unconsumed_tail:
        raise Refusal("malformed", f"a reply of more than {limit} bytes")
    if not unpacking.eof:
        raise Refusal("malformed", "gzip that is cut off")
    return data


def _no_tls(error: BaseException | None) -> str:
    """Why a TLS connection can't be had however often it is tried; "" where it is something else."""
    import ssl

    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate isn't trusted: {error.verify_message}"
        if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
            return "it doesn't speak TLS: name it with http://"
        error = error.__cause__ or error.__context__
    return ""


def _after(response: httpx2.Response) -> float | None:
    """Retry-After in seconds, where the server says it so."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _passed(deadline: float | None, wait: float = 0.0) -> bool:
    return deadline is not None and time.monotonic() + wait >= deadline
