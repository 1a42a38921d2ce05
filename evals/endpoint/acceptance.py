"""Drafts accepted, from whichever place a server tells them, where its replies don't: unknown isn't zero.

Counters (`/metrics`, Prometheus) and log lines are the server's, not the request's: what they moved by between two
looks belongs to an answer only where nobody else was asking. A server that others use meanwhile can't be read so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from evals.endpoint.address import EndpointError
from evals.endpoint.http import Http, Refusal

MAX_METRICS = 8 << 20
MAX_LOG = 4 << 20
"""Bytes of log that one answer may add."""

MAX_LOG_LINE = 4096
METRICS_S = 10.0
SETTLE_S = 1.0
"""How long to wait for a log line that is written after its reply."""

COUNTER = re.compile(
    rb"^(?P<name>[A-Za-z0-9_]+:?[A-Za-z0-9_]*spec_decode_num_(?P<what>draft|accepted)_tokens_total)"
    rb"(?:\{[^}\n]{0,2000}\})?[ \t]+(?P<value>[0-9.eE+]{1,40})",
    re.MULTILINE,
)
"""vLLM's vllm:spec_decode_num_draft_tokens_total and ..._accepted_tokens_total; llama.cpp names them alike."""

KNOWN = (
    r"draft accept(?:ance)?\s*=?\s*[0-9.]+\s*%?\s*"
    r"\(\s*(?P<accepted>[0-9]+)\s*(?:accepted\s*)?/\s*(?P<drafted>[0-9]+)"
)
"""arcint: draft accept 96.3% (157/163). llama.cpp: draft acceptance = 0.50000 (3 accepted / 6 generated)."""


class Counts(msgspec.Struct, frozen=True):
    """Tokens accepted of those drafted."""

    accepted: int
    drafted: int


class Source(Protocol):
    """Something to look at before and after an answer."""

    def before(self) -> None: ...
    def after(self) -> Counts | None:
        """What was drafted since `before`; None where it isn't told."""


class MetricsSource:
    """A server's Prometheus counters."""

    def __init__(self, http: Http, url: str) -> None:
        self._http, self._url = http, url
        self._seen: Counts | None = None

    def before(self) -> None:
        self._seen = self._read()

    def after(self) -> Counts | None:
        now, then = self._read(), self._seen
        if now is None or then is None:
            return None
        counts = Counts(now.accepted - then.accepted, now.drafted - then.drafted)
        return counts if counts.accepted >= 0 and counts.drafted >= 0 else None  # restarted in between

    def _read(self) -> Counts | None:
        try:
            return read_counters(self._http.get(self._url, METRICS_S, MAX_METRICS))
        except Refusal:
            return None


def read_counters(metrics: bytes) -> Counts | None:
    """The sums of the draft counters in a Prometheus text; None where one of the two isn't there."""
    sums: dict[bytes, float] = {}
    for match in COUNTER.finditer(metrics):
        try:
            sums[match["what"]] = sums.get(match["what"], 0.0) + float(match["value"])
        except ValueError:
            return None
    if sums.keys() != {b"draft", b"accepted"} or max(sums.values()) > 1e15:
        return None
    return Counts(accepted=int(sums[b"accepted"]), drafted=int(sums[b"draft"]))


class LogSource:
    """A server's log: what its new lines say. pattern has the groups `accepted` and `drafted`."""

    def __init__(self, path: Path, pattern: re.Pattern[str]) -> None:
        self._path, self._pattern = path, pattern
        self._at = 0

    def before(self) -> None:
        self._at = self._size()

    def after(self) -> Counts | None:
        end = time.monotonic() + SETTLE_S
        while (found := self._read()) is None and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _read(self) -> Counts | None:
        size = self._size()
        if size < self._at:  # rotated
            self._at = 0
        try:
            with self._path.open("rb") as log:
                log.seek(self._at)
                data = log.read(MAX_LOG)
        except OSError:
            return None
        return read_lines(data.decode("utf-8", "replace").splitlines(), self._pattern)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


def read_lines(lines: Iterable[str], pattern: re.Pattern[str]) -> Counts | None:
    """What lines say, summed; None where none of them says it in numbers."""
    found = [match for line in lines if (match := pattern.search(line[:MAX_LOG_LINE]))]
    numbers = [(m["accepted"], m["drafted"]) for m in found]
    counted = [(int(a), int(d)) for a, d in numbers if a and d and _is_count(a) and _is_count(d)]
    return Counts(sum(a for a, _ in counted), sum(d for _, d in counted)) if counted else None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 13


def log_pattern(text: str | None) -> re.Pattern[str]:
    """A user's pattern, or ours. Raises EndpointError where it isn't one or lacks a group."""
    if text is None:
        return re.compile(KNOWN, re.IGNORECASE)
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as e:
        raise EndpointError(f"--spec-log-pattern {text[:100]!r}: expected a regular expression ({e}).") from e
    if not {"accepted", "drafted"} <= pattern.groupindex.keys():
        raise EndpointError(
            f"--spec-log-pattern {text[:100]!r}: expected the groups (?P<accepted>\\d+) and (?P<drafted>\\d+)."
        )
    return pattern
