"""The threat: a reply put together wrongly: thinking lost, another choice mixed in, tokens that weren't told."""

from __future__ import annotations

import time

import pytest

from evals.endpoint.http import Refusal
from evals.endpoint.reply import Assembly, Reply
from evals.types import Answer

BARE = Answer(
    arm="served", task="t", prompt="p", repeat=0, prompt_sha256="", prompt_tokens=0, max_new_tokens=9
)


def streamed(*events: str, budget: int = 9) -> Reply:
    return Assembly(time.monotonic(), lambda text: text).stream(events, budget, lambda pieces: None)


def say(delta: str, finish: str = "null", more: str = "") -> str:
    return f'{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}{more}}}]}}'


def test_llama_cpps_stream() -> None:
    reply = streamed(
        say('{"role":"assistant","content":null}'),
        say('{"content":"1"}'),
        say('{"content":", 2"}'),
        say("{}", '"length"'),
        '{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":3,"total_tokens":7},'
        '"timings":{"draft_n":3,"draft_n_accepted":2},"system_fingerprint":"b1","model":"/home/me/m.gguf"}',
        "[DONE]",
    )
    answer = reply.fill(BARE)
    assert (answer.text, answer.finish, answer.cuts) == ("1, 2", "length", (1, 3))
    assert (answer.accepted, answer.drafted, answer.reported_tokens, answer.prompt_tokens) == (2, 3, 4, 3)
    assert answer.ids == () and answer.ids_from is None
    assert answer.server == {"model": "m.gguf", "system_fingerprint": "b1", "finish_reason": "length"}
    assert answer.ttft_s is not None and answer.decode_s is not None


def test_a_stream_without_done_or_usage_is_whole_all_the_same() -> None:
    answer = streamed(say('{"content":"a"}'), say("{}", '"stop"')).fill(BARE)
    assert (answer.text, answer.finish, answer.reported_tokens, answer.drafted) == ("a", "stop", None, None)


def test_thinking_that_comes_apart_is_part_of_the_answer() -> None:
    reply = streamed(say('{"reasoning_content":"hm"}'), say('{"content":"yes"}', '"stop"'))
    assert reply.text == "<think>hm</think>yes"


def test_a_call_that_comes_in_parts_is_part_of_the_answer() -> None:
    def part(function: str) -> str:
        return say(f'{{"tool_calls":[{{"index":0,"function":{function}}}]}}')

    first, second = part('{"name":"add","arguments":""}'), part('{"arguments":"{\\"a\\":1}"}')
    reply = streamed(first, second, say("{}", '"tool_calls"'))
    assert reply.text == '<tool_call>\n{"name": "add", "arguments": {"a":1}}\n</tool_call>'
    assert reply.finish == "stop"


def test_another_choice_is_not_mixed_in() -> None:
    other = '{"choices":[{"index":1,"delta":{"content":"B"},"finish_reason":"stop"}]}'
    assert streamed(say('{"content":"A"}'), other, say("{}", '"stop"')).text == "A"


def test_ids_are_known_only_where_every_piece_tells_them() -> None:
    told = streamed(
        say('{"content":"A"}', more=',"token_ids":[5,6]'),
        say('{"content":"B"}', '"stop"', ',"token_ids":[7]'),
    )
    assert (told.ids, told.ids_from) == ((5, 6, 7), "server")
    partly = streamed(say('{"content":"A"}', more=',"token_ids":[5]'), say('{"content":"B"}', '"stop"'))
    assert (partly.ids, partly.ids_from) == ((), None)


def test_a_bill_that_contradicts_itself_is_said() -> None:
    usage = '{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":3,"total_tokens":9}}'
    assert "billed as 9" in streamed(say('{"content":"a"}', '"stop"'), usage).fill(BARE).usage_fault


@pytest.mark.parametrize("count", ["-1", '"4"', "1e30"])
def test_counts_that_are_none_are_malformed(count: str) -> None:
    with pytest.raises(Refusal) as refused:
        streamed(f'{{"choices":[],"usage":{{"completion_tokens":{count}}}}}')
    assert refused.value.kind == "malformed"


def test_a_stream_far_past_its_budget_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.endpoint.reply.SPARE_EVENTS", 10)
    with pytest.raises(Refusal) as refused:
        streamed(*[say('{"content":"a"}')] * 100, budget=1)
    assert refused.value.kind == "malformed"
