"""Drafts accepted, from whichever place a server tells them, where its replies don't: unknown isn't zero.

Counters (`/metrics`, Prometheus) and log lines are the server's, not the request's: what they moved by between two
looks belongs to an answer only where nobody else was asking. Where the server counts its generated tokens too, they
have to have moved by what the answer is billed; where its log has a line an answer, there has to be one. Whatever
doesn't add up is unknown.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from evals.arms import MAX_K
from evals.endpoint.address import EndpointError
from evals.endpoint.http import Http, Refusal
from evals.endpoint.reply import short_name
from evals.endpoint.wire import Counts

MAX_METRICS = 8 << 20
MAX_LOG = 4 << 20
"""Bytes of log that one answer may add."""

MAX_LOG_LINE = 4096
METRICS_S = 10.0
SETTLE_S = 1.0
"""How long to wait for a log line, or a counter, that is written after its reply."""

POLL_S = 0.05
UNBILLED = 1
"""Tokens of an answer that one account may have and the other not: the end-of-sequence token."""

SAMPLE = re.compile(
    rb'^(?P<name>[A-Za-z_:][A-Za-z0-9_:]{0,200})(?:\{(?P<labels>(?:[^"}\n]|"(?:\\.|[^"\\\n])*"){0,4000})\})?'
    rb"[ \t]+(?P<value>[0-9.eE+]{1,40})(?=[ \t\r\n]|\Z)",
    re.MULTILINE,
)
GAUGE = re.compile(rb"^# TYPE (?P<name>[A-Za-z0-9_:]{1,200}) (?:gauge|histogram|summary)\b", re.MULTILINE)
MODEL = re.compile(r'(?:^|,)\s*(?:model_name|model)="(?P<model>(?:\\.|[^"\\])*)"')

COUNTERS = {
    "spec_decode_num_draft_tokens": "drafted",
    "spec_decode_num_accepted_tokens": "accepted",
    "generation_tokens": "generated",
    "tokens_predicted": "generated",
}
"""What counters mean, by how their names end: vLLM's vllm:spec_decode_num_draft_tokens_total, its
vllm:generation_tokens_total, llama.cpp's llamacpp:tokens_predicted_total. `_total` may lack (OpenMetrics' families)."""

STARTED = b"process_start_time_seconds"

KNOWN = (
    r"draft accept(?:ance)?(?:\s+rate)?\s*[=:]?\s*[0-9.]+\s*%?\s*"
    r"\(\s*(?P<accepted>[0-9]+)\s*(?:accepted\s*)?/\s*(?P<drafted>[0-9]+)"
)
"""arcint: draft accept 96.3% (157/163). llama.cpp: draft acceptance = 0.50000 (3 accepted / 6 generated), or in earlier
versions draft acceptance rate = 0.5 (…). One line an answer."""


class Source(Protocol):
    """Something to look at before and after answers."""

    def before(self) -> None: ...
    def after(self, billed: int | None, answers: int = 1) -> Counts | None:
        """What was drafted since `before` for so many answers, billed as so many tokens together (None: not told);
        None where it isn't told, or can't be theirs alone."""


class Reading(msgspec.Struct, frozen=True):
    """A server's counters at a moment. generated: tokens, None where they aren't counted. started: of its process."""

    drafted: int
    accepted: int
    generated: int | None
    started: bytes | None


class MetricsSource:
    """A server's Prometheus counters. model: the name that it serves under, of several in one exposition."""

    def __init__(self, http: Http, url: str) -> None:
        self._http, self._url = http, url
        self.model: str | None = None
        self._seen: Reading | None = None

    def before(self) -> None:
        self._seen = self._read()

    def after(self, billed: int | None, answers: int = 1) -> Counts | None:
        then, end = self._seen, time.monotonic() + SETTLE_S
        while then is not None and (now := self._read()) is not None:
            found = moved(then, now, billed, answers)
            if found != "late":
                return found
            if time.monotonic() > end:
                return None
            time.sleep(POLL_S)
        return None

    def _read(self) -> Reading | None:
        try:
            return read_counters(self._http.get(self._url, METRICS_S, MAX_METRICS, inflate=True), self.model)
        except Refusal:
            return None


def moved(then: Reading, now: Reading, billed: int | None, answers: int) -> Counts | Literal["late"] | None:
    """What the counters moved by, where that can be these answers'; "late" where they haven't come so far yet."""
    counts = Counts(now.accepted - then.accepted, now.drafted - then.drafted)
    if then.started != now.started or counts.accepted < 0 or counts.drafted < 0:
        return None  # another process: it was started anew in between
    if billed is None:
        return counts
    if then.generated is not None and now.generated is not None:
        generated = now.generated - then.generated
        if generated < billed - UNBILLED * answers:
            return "late"
        return counts if generated <= billed + UNBILLED * answers else None
    return counts if may_be(counts, billed, answers) else None


def may_be(counts: Counts, billed: int | None, answers: int) -> bool:
    """Whether so many answers can have accepted so much: their last steps may overshoot."""
    return billed is None or counts.accepted <= billed + MAX_K * answers


def read_counters(metrics: bytes, model: str | None = None) -> Reading | None:
    """The draft counters in a Prometheus text, summed over engines; None where one of the two isn't there, or nobody
    can tell which model's they are. A last line without its end may be half a number, and isn't read."""
    metrics = metrics[: metrics.rfind(b"\n") + 1]
    gauges = {match["name"].removesuffix(b"_total") for match in GAUGE.finditer(metrics)}
    sums: defaultdict[tuple[str, str], dict[str, dict[bytes, float]]] = defaultdict(dict)
    started: list[bytes] = []
    for match in SAMPLE.finditer(metrics):
        if match["name"] == STARTED:
            started.append(match["value"])
        stem = match["name"].removesuffix(b"_total")
        end = next((end for end in COUNTERS if stem.endswith(end.encode())), None)
        if end is None or stem in gauges:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            return None
        if value > 1e15:
            return None
        labels = (match["labels"] or b"").decode("utf-8", "replace")
        label = MODEL.search(labels)
        kind = stem.decode().removesuffix(end)
        by_name = sums[kind, label["model"] if label else ""].setdefault(COUNTERS[end], {})
        by_name[match["name"]] = by_name.get(match["name"], 0.0) + value
    told = {key: found for key, found in sums.items() if {"drafted", "accepted"} <= found.keys()}
    mine = [key for key in told if model is not None and model in (key[1], short_name(key[1]))]
    keys = mine or list(told)
    if len(keys) != 1:
        return None
    # a counter and its family may stand there under two names, with one value
    found = {what: int(max(by_name.values())) for what, by_name in told[keys[0]].items()}
    return Reading(
        drafted=found["drafted"],
        accepted=found["accepted"],
        generated=found.get("generated"),
        started=b",".join(started) or None,
    )


class LogSource:
    """A server's log: what its new lines say. pattern has the groups `accepted` and `drafted`; ours is in one line an
    answer, so that another number of lines is somebody else's too, a user's own may be in many."""

    def __init__(self, path: Path, pattern: re.Pattern[str]) -> None:
        self._path, self._pattern, self._once = path, pattern, pattern.pattern == KNOWN
        self._at = 0

    def before(self) -> None:
        self._at = self._size()

    def after(self, billed: int | None, answers: int = 1) -> Counts | None:
        end = time.monotonic() + SETTLE_S
        least = answers if self._once else 1
        while len(found := self._read()) < least and time.monotonic() < end:
            time.sleep(POLL_S)
        if not found or (self._once and len(found) != answers):
            return None
        counts = Counts(sum(one.accepted for one in found), sum(one.drafted for one in found))
        return counts if may_be(counts, billed, answers) else None

    def _read(self) -> list[Counts]:
        size = self._size()
        if size < self._at:  # rotated
            self._at = 0
        try:
            with self._path.open("rb") as log:
                log.seek(self._at)
                data = log.read(MAX_LOG)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be half there
        return read_lines(whole.decode("utf-8", "replace").splitlines(), self._pattern)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


def read_lines(lines: Iterable[str], pattern: re.Pattern[str]) -> list[Counts]:
    """What those lines say that say it in numbers."""
    found = [match for line in lines if (match := pattern.search(line[:MAX_LOG_LINE]))]
    numbers = [(m["accepted"], m["drafted"]) for m in found]
    return [Counts(int(a), int(d)) for a, d in numbers if a and d and _is_count(a) and _is_count(d)]


def share_out(counts: Counts, weights: Sequence[int]) -> list[Counts] | None:
    """Counts of answers that were in flight together, shared out by their weights (tokens): the sums are exact, each
    answer's own are not. None where nothing weighs anything: then nobody can tell whose they are."""
    total, upto, found = sum(weights), 0, []
    if total == 0:
        return None
    drafted = accepted = 0
    for weight in weights:
        upto += weight
        drafts = counts.drafted * upto // total
        kept = counts.accepted * drafts // max(1, counts.drafted)
        found.append(Counts(accepted=kept - accepted, drafted=drafts - drafted))
        drafted, accepted = drafts, kept
    return found


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
