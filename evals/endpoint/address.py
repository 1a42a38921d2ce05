"""Where a server is and what is asked of it, as the user says it; and the key, which only the environment may hold."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import msgspec

from evals.types import Endpoint

KEYS = ("GATE_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key, the first that is set counts."""

MAX_URL = 2000
OURS = frozenset(
    {
        "model",
        "messages",
        "tools",
        "prompt",
        "max_tokens",
        "temperature",
        "seed",
        "stream",
        "stream_options",
        "logprobs",
    }
    | {"top_logprobs", "n"}
)
"""Fields of a request that the gate itself sets."""

SUFFIXES = {"/chat/completions": "chat", "/completions": "completions"}


class EndpointError(ValueError):
    """A server that can't be gated as it was named: expected, found, what to do."""


def parse_endpoint(
    url: str,
    option: str,
    *,
    api: str | None = None,
    model: str | None = None,
    stream: bool = True,
    request: dict[str, Any] | None = None,
) -> Endpoint:
    """The endpoint that a URL names: its base (http://host:port/v1), or one of its completions routes, which then says
    which API is meant. Raises EndpointError for credentials in it, a query, or another scheme."""
    shown = url if "@" not in url and "?" not in url else "a URL with credentials or a query in it"
    problem = None
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > MAX_URL:
            problem = f"expected http://HOST:PORT/v1 (or /v3), found {shown[:200]!r}"
        elif parts.username is not None or parts.password is not None:
            problem = "expected a URL without credentials: put the key into " + " or ".join(KEYS)
        elif parts.query or parts.fragment:
            problem = "expected a URL without a query or a fragment"
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        problem = f"expected http://HOST:PORT/v1 (or /v3), found {shown[:200]!r}"
    if problem:
        raise EndpointError(f"{option}: {problem}.")
    path = parts.path.rstrip("/")
    for suffix, named in SUFFIXES.items():
        if path.endswith(suffix):
            path, api = path.removesuffix(suffix), api or named
            break
    return Endpoint(
        url=f"{parts.scheme}://{parts.netloc}{path or '/v1'}",
        api="completions" if api == "completions" else "chat",
        model=model,
        stream=stream,
        request=dict(request or {}),
    )


def parse_metrics_url(url: str, option: str) -> str:
    """The URL of a server's counters. Raises EndpointError for credentials in it, or another scheme."""
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and len(url) <= MAX_URL
        good = good and parts.username is None and parts.password is None
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        good = False
    if not good:
        raise EndpointError(f"{option}: expected http://HOST:PORT/metrics, without credentials.")
    return parts.geturl()  # without the control characters that urlsplit drops


def parse_request_field(text: str) -> tuple[str, Any]:
    """KEY=JSON of `--request`, a further field of every request. Raises EndpointError."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key.isidentifier() or len(text) > 10_000:
        raise EndpointError(
            f"--request {text[:100]!r}: expected KEY=JSON, e.g. cache_prompt=false or "
            'chat_template_kwargs={"enable_thinking":false}.'
        )
    if key in OURS:
        raise EndpointError(f"--request {key}: expected a field that the gate doesn't set itself.")
    try:
        return key, msgspec.json.decode(value.encode())
    except (msgspec.DecodeError, RecursionError) as e:
        raise EndpointError(
            f"--request {key}: expected JSON after the =, found {value[:100]!r} ({e})."
        ) from e


def api_key() -> str | None:
    """The key to send, or None. Never written, logged or shown."""
    return next((os.environ[name] for name in KEYS if os.environ.get(name)), None)


def origin(url: str) -> str:
    """scheme://host:port of a URL: where /health and /metrics are."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
