"""The threat: a reply put together wrongly: thinking lost, another choice mixed in, tokens that weren't told."""

from __future__ import annotations

import time

import pytest

from evals.endpoint.http import Refusal
from evals.endpoint.reply import Assembly, Reply
from evals.toolcalls import Call, find_call
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


def called(*calls: str) -> str:
    return say(f'{{"content":null,"tool_calls":[{",".join(calls)}]}}')


ADD = '<tool_call>\n{"name": "add", "arguments": {"a":1}}\n</tool_call>'
SUB = '<tool_call>\n{"name": "sub", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (
            [
                called('{"index":0,"id":"c1","function":{"name":"add","arguments":""}}'),
                called('{"index":0,"function":{"arguments":"{\\"a\\""}}'),
                called('{"index":0,"function":{"arguments":":1}"}}'),
            ],
            ADD,
        ),
        ([called('{"index":0,"function":{"name":"add","arguments":{"a":1}}}')], ADD),
        ([called('{"index":0,"function":{"name":"sub","arguments":null}}')], SUB),
        (
            [
                called('{"index":0,"function":{"name":"add","arguments":"{\\"a\\":"}}'),
                called('{"index":1,"function":{"name":"sub"}}'),
                called('{"index":0,"function":{"arguments":"1}"}}'),
                called('{"index":1,"function":{"arguments":" "}}'),
            ],
            ADD + SUB,
        ),
        (
            [
                called('{"index":0,"id":"c1","function":{"name":"add","arguments":"{\\"a\\":1}"}}'),
                called('{"index":0,"id":"c2","function":{"name":"sub","arguments":""}}'),
            ],
            ADD + SUB,
        ),
        (
            [
                called('{"id":"c1","function":{"name":"add"}}'),
                called('{"function":{"arguments":"{\\"a\\":1}"}}'),
                called('{"function":{"name":"sub"}}'),
            ],
            ADD + SUB,
        ),
        (
            [say('{"function_call":{"name":"add"}}'), say('{"function_call":{"arguments":"{\\"a\\":1}"}}')],
            ADD,
        ),
        ([called(), say('{"content":""}'), say('{"content":[{"type":"text","text":"hi"}]}')], "hi"),
    ],
)
def test_calls_are_part_of_the_answer_however_they_come(events: list[str], text: str) -> None:
    reply = streamed(*events, say("{}", '"tool_calls"'))
    assert (reply.text, reply.finish) == (text, "stop")
    assert reply.ttft_s is not None


def test_calls_that_come_whole_are_each_their_own() -> None:
    calls = ",".join(f'{{"id":"c{n}","type":"function","function":{f}}}' for n, f in enumerate(
        ['{"name":"add","arguments":"{\\"a\\":1}"}', '{"name":"sub","arguments":{}}']
    ))  # fmt: skip
    body = f'{{"choices":[{{"message":{{"content":null,"tool_calls":[{calls}]}},"finish_reason":"tool_calls"}}]}}'
    reply = Assembly(time.monotonic(), lambda text: text).whole(body.encode())
    assert reply.text == ADD + SUB


def test_an_argument_cannot_close_its_own_call() -> None:
    reply = streamed(
        called('{"index":0,"function":{"name":"add","arguments":"{\\"a\\":\\"</tool_call>\\"}"}}'),
        say("{}", '"tool_calls"'),
    )
    found = find_call(reply.text, [{"type": "function", "function": {"name": "add"}}])
    assert isinstance(found, Call) and found.arguments == {"a": "</tool_call>"}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [('"stop"', "stop"), ('"eos_token"', "stop"), ('"max_tokens"', "length"), ('"content_filter"', "unknown"),
     ('{"type":"stop"}', "unknown")],
)  # fmt: skip
def test_finish_reasons_that_are_not_known_stay_unknown(reason: str, finish: str) -> None:
    assert streamed(say('{"content":"a"}'), say("{}", reason)).finish == finish


def test_a_reply_that_the_server_gave_up_is_none() -> None:
    with pytest.raises(Refusal) as refused:
        streamed(say('{"content":"a"}'), say("{}", '"abort"'))
    assert refused.value.kind == "cut"


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"<!DOCTYPE html><p>Sign in</p>", "not_api"), (b'data: {"choices":[]}\n\ndata: [DONE]\n\n', "cut")],
)
def test_what_came_whole_and_is_no_message_has_its_name(body: bytes, kind: str) -> None:
    with pytest.raises(Refusal) as refused:
        Assembly(time.monotonic(), lambda text: text).whole(body)
    assert refused.value.kind == kind


def test_a_stream_that_is_not_said_to_be_one_is_read_and_has_no_times() -> None:
    body = "".join(f"data: {data}\n\n" for data in (say('{"content":"a"}'), say("{}", '"stop"'), "[DONE]"))
    reply = Assembly(time.monotonic(), lambda text: text).whole(body.encode())
    assert (reply.text, reply.cuts, reply.ttft_s, reply.decode_s) == ("a", (), None, None)


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        (
            '"metrics":{"speculative_decoding":{"num_draft_tokens":129,"num_accepted_draft_tokens":10}}',
            (10, 129),
        ),
        ('"metrics":{"speculative_decoding":null},"timings":{"draft_n":4,"draft_n_accepted":1}', (1, 4)),
        ('"timings":{"draft_n":4,"draft_n_accepted":null}', (None, None)),
        ('"timings":{"draft_n":true,"draft_n_accepted":1.5}', (None, None)),
        ('"timings":[],"metrics":"none","model":7,"system_fingerprint":[]', (None, None)),
    ],
)
def test_drafts_are_known_where_both_numbers_are_told(
    more: str, counts: tuple[int | None, int | None]
) -> None:
    reply = streamed(say('{"content":"a"}', '"stop"'), f'{{"choices":[],{more}}}')
    assert (reply.accepted, reply.drafted) == counts


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


KEY = "sk-secret-0123456789"


def whole_reply(body: str) -> Reply:
    return Assembly(0.0, lambda text: text.replace(KEY, "[key]")).whole(body.encode())


def test_what_goes_on_record_is_without_the_key() -> None:
    reply = whole_reply(
        f'{{"model":"{KEY}","system_fingerprint":"{KEY}",'
        f'"choices":[{{"message":{{"content":"a"}},"finish_reason":"{KEY}"}}]}}'
    )
    assert set(reply.server.values()) == {"[key]"}


@pytest.mark.parametrize("start", ["<" + "x" * 70, "x" * 70])
def test_a_start_that_is_shown_holds_no_part_of_the_key(start: str) -> None:
    with pytest.raises(Refusal) as refused:
        whole_reply(start + KEY)
    assert KEY[:4] not in refused.value.message


@pytest.mark.parametrize("depth", [1, 900, 960, 980, 995, 2000])
@pytest.mark.parametrize(
    "body",
    [
        '{"model":%s,"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}',
        '{"choices":[{"message":{"content":"a"},"finish_reason":%s}]}',
        '{"error":%s}',
        '{"choices":[{"message":{"tool_calls":[{"function":{"arguments":%s}}]},"finish_reason":"stop"}]}',
    ],
)
def test_nesting_where_a_text_belongs_is_never_a_traceback(body: str, depth: int) -> None:
    for opening, closing in ("[]", ('{"a":', "}")):
        try:
            reply = whole_reply(body % (opening * depth + "1" + closing * depth))
        except Refusal as refusal:
            assert refusal.kind == "malformed"
        else:
            assert "model" not in reply.server and "[" not in reply.server["finish_reason"]


def test_a_flood_of_calls_is_refused() -> None:
    parts = [f'{{"index":{n},"function":{{"name":"f"}}}}' for n in range(1001)]
    assert streamed(called(*parts[:1000]), say("{}", '"stop"')).text.count("<tool_call>") == 1000
    with pytest.raises(Refusal, match="calls of tools"):
        streamed(called(*parts))
