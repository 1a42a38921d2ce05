"""The threat: an acceptance that is another's, or none, taken for this arm's; 0/0 and unknown taken for 0 %."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evals.endpoint.acceptance import (
    LogSource,
    MetricsSource,
    Reading,
    log_pattern,
    moved,
    read_counters,
    read_lines,
    share_out,
)
from evals.endpoint.address import EndpointError, parse_endpoint
from evals.endpoint.http import Http, Refusal, _inflated
from evals.endpoint.reply import Reply
from evals.endpoint.seat import EndpointSeat
from evals.endpoint.wire import Counts
from evals.messages import Message
from evals.plan import Asked
from tests.evals.endpoint.stub_server import HEAD, event, stub

HELLO = Asked(task="t", prompt="p", text="hello", max_new_tokens=8, messages=(Message("user", "hello"),))

VLLM = b"""# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 160.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 3.0
# TYPE vllm:spec_decode_num_draft_tokens_created gauge
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1.5e2
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 7
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 99
vllm:generation_tokens_total{engine="0",model_name="m"} 400.0
process_start_time_seconds 1.76e+09
"""
LLAMA = b"llamacpp:spec_decode_num_draft_tokens_total 6\nllamacpp:spec_decode_num_accepted_tokens_total 3\n"
SMALL = b"""ns:spec_decode_num_draft_tokens{model_name="a b",x="}"} 6
ns:spec_decode_num_accepted_tokens{model_name="a b",x="}"} 3 1700000000
"""


def vllm(
    drafted: int, accepted: int, generated: int | None = None, start: int = 1, model: str = "m"
) -> bytes:
    lines = [f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="{model}"}} {drafted}.0']
    lines += [f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="{model}"}} {accepted}.0']
    if generated is not None:
        lines += [f'vllm:generation_tokens_total{{engine="0",model_name="{model}"}} {generated}.0']
    return ("\n".join([*lines, f"process_start_time_seconds {start}"]) + "\n").encode()


def test_counters_are_summed_over_engines() -> None:
    assert read_counters(VLLM) == Reading(drafted=163, accepted=157, generated=400, started=b"1.76e+09")
    assert read_counters(LLAMA) == Reading(drafted=6, accepted=3, generated=None, started=None)
    assert read_counters(SMALL) == Reading(drafted=6, accepted=3, generated=None, started=None)


def test_a_counter_under_two_names_counts_once() -> None:
    both = LLAMA + LLAMA.replace(b"_total", b"")
    assert read_counters(both) == read_counters(LLAMA)


def test_of_several_models_the_served_one_counts() -> None:
    two = vllm(8, 4, model="org/big") + vllm(80, 40, model="small")
    assert read_counters(two) is None, "nobody says whose they are"
    for name in ("org/big", "big"):
        found = read_counters(two, name)
        assert found is not None and found.drafted == 8


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>not metrics</html>",
        b"vllm:spec_decode_num_draft_tokens_total 4\n",
        b'ovms_requests_success{name="m"} 4\n',
        b"x:spec_decode_num_draft_tokens_total 1e999\nx:spec_decode_num_accepted_tokens_total 1\n",
        b"x:spec_decode_num_draft_tokens_total NaN\nx:spec_decode_num_accepted_tokens_total 1\n",
        b"# TYPE x:spec_decode_num_draft_tokens gauge\n"
        b"x:spec_decode_num_draft_tokens 4\nx:spec_decode_num_accepted_tokens_total 1\n",
        b"a:spec_decode_num_draft_tokens_total 4\nb:spec_decode_num_accepted_tokens_total 1\n",
    ],
)
def test_what_is_not_told_is_unknown(text: bytes) -> None:
    assert read_counters(text) is None


@pytest.mark.parametrize(
    ("then", "now", "billed", "counts"),
    [
        (vllm(10, 5, 100), vllm(30, 20, 120), 20, Counts(15, 20)),
        (vllm(10, 5, 100), vllm(30, 20, 121), 20, Counts(15, 20)),  # the end-of-sequence token
        (vllm(10, 5, 100), vllm(30, 20, 190), 20, None),  # another client's tokens
        (vllm(10, 5, 100), vllm(30, 20, 104), 20, "late"),
        (
            vllm(10, 5, 100),
            vllm(30, 20, 120, start=2),
            20,
            None,
        ),  # started anew, and further than before already
        (vllm(10, 5, 100), vllm(3, 2, 20), 20, None),
        (vllm(10, 5), vllm(30, 20), None, Counts(15, 20)),
        (vllm(10, 5), vllm(300, 200), 20, None),  # more than the answer has tokens
    ],
)
def test_what_counters_moved_by_is_an_answers_only_where_it_adds_up(
    then: bytes, now: bytes, billed: int | None, counts: Counts | str | None
) -> None:
    readings = read_counters(then), read_counters(now)
    assert readings[0] is not None and readings[1] is not None
    assert moved(readings[0], readings[1], billed, 1) == counts


@contextmanager
def metrics(*texts: bytes, gzipped: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """A server of metrics alone: each look gets the next text, the last one for ever."""
    heads: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            heads.append(self.headers.as_bytes())
            text = texts[min(len(heads), len(texts)) - 1]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            if gzipped:
                text = gzip.compress(text)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics", heads
    finally:
        server.shutdown()
        server.server_close()


def test_counters_that_come_late_are_waited_for() -> None:
    with metrics(vllm(10, 5, 100), vllm(10, 5, 100), vllm(30, 20, 120)) as (url, _):
        source = MetricsSource(Http(), url)
        source.before()
        assert source.after(20) == Counts(15, 20)


BILLED = (
    HEAD
    + event("one ")
    + event("two", "stop")
    + b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":20,"total_tokens":23}}\n\ndata: [DONE]\n\n'
)


def test_gzipped_counters_on_another_port_are_read_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_API_KEY", "sk-secret-0123456789")
    with (
        stub(lambda c, body, n: c.sendall(BILLED)) as (url, asked),
        metrics(vllm(10, 5, 100), vllm(30, 20, 120), gzipped=True) as (counters, heads),
    ):
        seat = EndpointSeat(parse_endpoint(url, "--spec-url"), "spec", metrics_url=counters)
        seat.start()
        assert seat.ready() is None
        reply = seat.ask(HELLO)
        seat.kill()
    assert isinstance(reply, Reply)
    assert (reply.accepted, reply.drafted) == (15, 20)
    assert b"sk-secret" in asked[0] and not any(b"sk-secret" in head for head in heads)


@pytest.mark.parametrize(("generated", "told"), [(140, True), (180, False)])
def test_what_moved_for_a_batch_is_shared_out_among_it(generated: int, told: bool) -> None:
    """Two answers of 20 tokens: 40 are theirs, 80 would be another client's as well."""
    with (
        stub(lambda c, body, n: c.sendall(BILLED)) as (url, _),
        metrics(vllm(10, 5, 100), vllm(31, 20, generated)) as (counters, _),
    ):
        seat = EndpointSeat(parse_endpoint(url, "--spec-url"), "spec", metrics_url=counters)
        seat.start()
        assert seat.ready() is None
        replies = seat.ask_all([HELLO, HELLO])
        seat.kill()
    counts = [(r.accepted, r.drafted) for r in replies if isinstance(r, Reply)]
    assert counts == ([(7, 10), (8, 11)] if told else [(None, None)] * 2)


def test_shares_add_up_and_none_accepts_more_than_it_drafts() -> None:
    for accepted, drafted, weights in ((7, 9, [1, 50, 3]), (5, 5, [2, 2, 2, 2]), (0, 0, [4])):
        shares = share_out(Counts(accepted, drafted), weights)
        assert shares is not None and all(0 <= s.accepted <= s.drafted for s in shares)
        assert (sum(s.accepted for s in shares), sum(s.drafted for s in shares)) == (accepted, drafted)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("[info] request 7: draft accept 96.3% (157/163) 41 t/s", Counts(157, 163)),
        ("slot: draft acceptance = 0.50000 ( 3 accepted / 6 generated)", Counts(3, 6)),
        ("draft acceptance rate = 0.57576 (   19 accepted /    33 generated)", Counts(19, 33)),
        ("draft accept 0.0% (0/0)", Counts(0, 0)),
        ("nothing of the kind", None),
    ],
)
def test_known_log_lines_are_read(line: str, counts: Counts | None) -> None:
    assert read_lines([line], log_pattern(None)) == ([] if counts is None else [counts])


def test_a_users_own_pattern_is_used_and_has_to_name_both_numbers() -> None:
    pattern = log_pattern(r"took (?P<accepted>\d+) of (?P<drafted>\d+)")
    assert read_lines(["took 3 of 4", "took 1 of 4", "took x of y"], pattern) == [Counts(3, 4), Counts(1, 4)]
    with pytest.raises(EndpointError, match="accepted"):
        log_pattern(r"took (\d+) of (\d+)")
    with pytest.raises(EndpointError, match="regular expression"):
        log_pattern("(?P<accepted>")


def test_only_lines_of_this_answer_count(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("draft accept 10.0% (1/10)\n")
    source = LogSource(log, log_pattern(None))
    source.before()
    assert source.after(9) is None

    def late() -> None:
        time.sleep(0.1)
        for half in ("draft accept 50.0% (2/4", "0)\n"):
            with log.open("a") as f:
                f.write(half)
            time.sleep(0.1)

    source.before()
    writer = threading.Thread(target=late)
    writer.start()
    assert source.after(9) == Counts(2, 40), (
        "a line that is written after the reply is waited for, to its end"
    )
    writer.join()
    source.before()
    log.write_text("draft accept 75.0% (3/4)\n")
    assert source.after(9) == Counts(3, 4), "a log that was rotated is read from its start"


def test_lines_of_others_are_not_taken_for_this_answers(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.touch()
    source = LogSource(log, log_pattern(None))
    two = "draft accept 75.0% (3/4)\ndraft accept 50.0% (2/4)\n"
    source.before()
    log.write_text(two)
    assert source.after(9) is None
    assert source.after(9, answers=2) == Counts(5, 8)
    log.write_text("draft accept 96.0% (960/1000)\n")
    assert source.after(9) is None, "an answer of 9 tokens accepts no 960 drafts"
    steps = LogSource(log, log_pattern(r"\((?P<accepted>\d+)/(?P<drafted>\d+)\)"))
    log.write_text(two)
    assert steps.after(9) == Counts(5, 8), "a pattern of the user's own may tell step by step"


def test_where_nothing_weighs_anything_the_shares_are_unknown() -> None:
    assert share_out(Counts(3, 6), [0, 0]) is None


def test_a_number_that_is_cut_off_is_not_read() -> None:
    assert read_counters(LLAMA) == Reading(6, 3, None, None)
    assert read_counters(LLAMA[:-1]) is None
    with pytest.raises(Refusal, match="cut off"):
        _inflated(gzip.compress(LLAMA * 100)[:-9], 1 << 20)
