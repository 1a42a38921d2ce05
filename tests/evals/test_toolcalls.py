"""The threat: a call that no server could make is graded as one, or a fault of a call passes under another's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evals.grade import grade_answer
from evals.toolcalls import Call, Faulty, find_call, grade_call
from evals.types import Answer
from tasks.folder import load_task
from tasks.types import Case

WEATHER = load_task(Path(__file__).parents[2] / "docs/examples/weather")
TOOLS = WEATHER.tools
CALLS = Case(name="calls", tool="get_weather")


def qwen(name: str = "get_weather", arguments: str = '{"city": "Leipzig"}') -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def tagged(**parameters: str) -> str:
    body = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in parameters.items())
    return f"<tool_call>\n<function=get_weather>\n{body}</function>\n</tool_call>"


GOOD = [
    qwen(),
    f"I will look it up.\n{qwen()}",
    f"<think>\nmaybe {qwen('find_station')}\n</think>\n\n{qwen()}",
    tagged(city="Leipzig"),
    "<function=get_weather>\n<parameter=city>\nLeipzig\n</parameter>\n</function>",
    '{"name": "get_weather", "arguments": {"city": "Leipzig"}}',
    '```json\n{"name": "get_weather", "arguments": {"city": "Leipzig"}}\n```',
    qwen(arguments=json.dumps('{"city": "Leipzig"}')),
]


@pytest.mark.parametrize("text", GOOD)
def test_every_syntax_gives_the_same_call(text: str) -> None:
    assert find_call(text, TOOLS) == Call("get_weather", {"city": "Leipzig"})


@pytest.mark.parametrize(
    ("text", "outcome", "begins"),
    [
        ("It rains.", "no_program", "no call"),
        ("", "no_program", "no call"),
        (f"<think>\n{qwen()}\n</think>\n\nIt rains.", "no_program", "call in thinking"),
        (qwen() + qwen(), "fail", "several calls: 2"),
        (qwen().replace("</tool_call>", ""), "fail", "call not closed"),
        (qwen(arguments="{'city': 'Leipzig'}"), "fail", "malformed call"),
        (qwen(arguments='["Leipzig"]'), "fail", "malformed call"),
        ('<tool_call>{"city": "Leipzig"}</tool_call>', "fail", "malformed call"),
        (tagged(city="Leipzig").replace("<parameter", "so <parameter", 1), "fail", "malformed call"),
        (qwen(arguments='{"city": "Halle", "city": "Leipzig"}'), "fail", "duplicate key"),
        (
            tagged(city="Leipzig").replace("</function>", "<parameter=city>x</parameter></function>"),
            "fail",
            "duplicate",
        ),
        (qwen(arguments='{"city": NaN}'), "fail", "not a finite number"),
        (qwen(arguments='{"city": 1e999}'), "fail", "not a finite number"),
        (qwen(arguments='{"city": ' + "[" * 60 + "]" * 60 + "}"), "fail", "too large"),
        (qwen(arguments='{"city": [' + "1," * 3000 + "1]}"), "fail", "too large"),
        (qwen(arguments='{"city": "' + "x" * 300_000 + '"}'), "fail", "too large"),
        (qwen("get_wether"), "fail", "unknown tool"),
        (qwen("find_station", '{"latitude": 51.3, "longitude": 12.4}'), "fail", "wrong tool"),
        (qwen(arguments='{"city": "Leipzig", "when": "now"}'), "fail", "extra key"),
        (qwen(arguments="{}"), "fail", "missing key"),
        (qwen(arguments='{"city": 7}'), "fail", "wrong type: $.city"),
        (qwen(arguments='{"city": "Leipzig", "unit": "kelvin"}'), "fail", "wrong value: $.unit"),
        (tagged(city="Leipzig", unit="kelvin"), "fail", "wrong value: $.unit"),
    ],
)
def test_each_fault_has_its_own_name(text: str, outcome: str, begins: str) -> None:
    found = grade_call(CALLS, WEATHER, find_call(text, TOOLS))
    assert (found.outcome, found.observed[: len(begins)]) == (outcome, begins)
    assert len(found.observed) < 500


@pytest.mark.parametrize("text", [qwen()[:-20], "<think>\nI wonder"])
def test_what_the_budget_cut_off_is_truncated(text: str) -> None:
    assert grade_call(CALLS, WEATHER, find_call(text, TOOLS, truncated=True)).outcome == "truncated"


def test_parameters_in_tags_are_typed_by_the_tool() -> None:
    text = "<function=find_station><parameter=latitude>51.5</parameter><parameter=longitude>12</parameter></function>"
    assert find_call(text, TOOLS) == Call("find_station", {"latitude": 51.5, "longitude": 12})
    number_as_name = tagged(city="4711")
    assert find_call(number_as_name, TOOLS) == Call("get_weather", {"city": "4711"})


def test_a_case_with_a_schema_asks_for_no_more_than_that() -> None:
    """So that a mutant can be wrong in one way."""
    city = Case(name="city", tool="get_weather", schema={"properties": {"city": {"const": "Leipzig"}}})
    call = find_call(qwen(arguments='{"city": "Leipzig", "when": "now"}'), TOOLS)
    assert grade_call(city, WEATHER, call).outcome == "pass"
    assert grade_call(CALLS, WEATHER, call).outcome == "fail"


def test_a_schema_that_allows_for_more_keys_has_them() -> None:
    tools = json.loads(json.dumps(TOOLS))
    tools[0]["function"]["parameters"]["additionalProperties"] = True
    open_task = replace(WEATHER, tools=tuple(tools))
    call = find_call(qwen(arguments='{"city": "Leipzig", "when": "now"}'), open_task.tools)
    assert grade_call(CALLS, open_task, call).outcome == "pass"


@pytest.mark.timeout(60)
def test_a_pattern_without_end_is_ended() -> None:
    slow = Case(name="slow", tool="get_weather", schema={"properties": {"city": {"pattern": "^(a|aa)+$"}}})
    call = Call("get_weather", {"city": "a" * 60 + "!"})
    found = grade_call(slow, WEATHER, call)
    assert (found.outcome, found.observed) == ("fail", "wrong value: $: a pattern took too long")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "unit", ["<tool_call>", "<function=", "<function=x><parameter=", "<think>", "{", "</tool_call>"]
)
def test_a_long_text_of_openings_is_read_in_linear_time(unit: str) -> None:
    find_call(unit * (1_000_000 // len(unit)), TOOLS)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [*GOOD, "<tool_call>", "</tool_call>", "<function=", ">", "{", "}", '"', "</think>", "x"]
        )
    )
)
def test_nothing_raises(parts: list[str]) -> None:
    found = find_call("".join(parts), TOOLS)
    assert isinstance(found, Call | Faulty)
    grade_call(CALLS, WEATHER, found)


def answer(prompt: str, text: str) -> Answer:
    return Answer(
        arm="plain", task="weather", prompt=prompt, repeat=0, prompt_sha256="x", prompt_tokens=1, max_new_tokens=128,
        ids=(1, 2), text=text, finish="stop",
    )  # fmt: skip


def test_each_turn_is_graded_by_its_own_cases() -> None:
    first = grade_answer(WEATHER, answer("p1", qwen()), None)
    assert [(c.case, c.outcome) for c in first.cases] == [("calls", "pass"), ("city", "pass")]
    unjudged = grade_answer(WEATHER, answer("p1.2", "It rains."), None)
    assert (unjudged.cases, unjudged.infra) == ((), False)
    last = grade_answer(WEATHER, answer("p1.3", tagged(city="Halle", unit="celsius")), None)
    assert [(c.case, c.outcome) for c in last.cases] == [("other_city", "pass"), ("other_unit", "fail")]
