"""The threat: an acceptance that is another's, or none, taken for this arm's; 0/0 and unknown taken for 0 %."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from evals.endpoint.acceptance import Counts, LogSource, log_pattern, read_counters, read_lines
from evals.endpoint.address import EndpointError

VLLM = b"""# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 160.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 3.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1.5e2
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 7
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 99
"""
LLAMA = b"llamacpp:spec_decode_num_draft_tokens_total 6\nllamacpp:spec_decode_num_accepted_tokens_total 3\n"


def test_counters_are_summed_over_engines() -> None:
    assert read_counters(VLLM) == Counts(accepted=157, drafted=163)
    assert read_counters(LLAMA) == Counts(accepted=3, drafted=6)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>not metrics</html>",
        b"vllm:spec_decode_num_draft_tokens_total 4\n",
        b'ovms_requests_success{name="m"} 4\n',
        b"x:spec_decode_num_draft_tokens_total 1e999\nx:spec_decode_num_accepted_tokens_total 1\n",
    ],
)
def test_what_is_not_told_is_unknown(text: bytes) -> None:
    assert read_counters(text) is None


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("[info] request 7: draft accept 96.3% (157/163) 41 t/s", Counts(157, 163)),
        ("slot: draft acceptance = 0.50000 ( 3 accepted / 6 generated)", Counts(3, 6)),
        ("draft accept 0.0% (0/0)", Counts(0, 0)),
        ("nothing of the kind", None),
    ],
)
def test_known_log_lines_are_read(line: str, counts: Counts | None) -> None:
    assert read_lines([line], log_pattern(None)) == counts


def test_a_users_own_pattern_is_used_and_has_to_name_both_numbers() -> None:
    pattern = log_pattern(r"took (?P<accepted>\d+) of (?P<drafted>\d+)")
    assert read_lines(["took 3 of 4", "took 1 of 4", "took x of y"], pattern) == Counts(4, 8)
    with pytest.raises(EndpointError, match="accepted"):
        log_pattern(r"took (\d+) of (\d+)")
    with pytest.raises(EndpointError, match="regular expression"):
        log_pattern("(?P<accepted>")


def test_only_lines_of_this_answer_count(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("draft accept 10.0% (1/10)\n")
    source = LogSource(log, log_pattern(None))
    source.before()
    assert source.after() is None

    def late() -> None:
        time.sleep(0.2)
        with log.open("a") as f:
            f.write("draft accept 50.0% (2/4)\n")

    source.before()
    writer = threading.Thread(target=late)
    writer.start()
    assert source.after() == Counts(2, 4), "a line that is written after the reply is waited for"
    writer.join()
    source.before()
    log.write_text("draft accept 75.0% (3/4)\n")
    assert source.after() == Counts(3, 4), "a log that was rotated is read from its start"
