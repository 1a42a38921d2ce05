"""The threat: calls of tools that a server splits off its text, in parts, whole or as objects, and that the gate then
doesn't see, sees as several, or hands on to the next turn as something that the server refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gate.cli import gate
from tests.evals.endpoint.stub_server import HEAD, stub

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
POLICY = "[thresholds]\nmin_drafts = 8\n"


def delta(said: dict[str, Any], finish: str | None = None) -> bytes:
    event = {"choices": [{"index": 0, "delta": {"content": None, **said}, "finish_reason": finish}]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def in_parts(arguments: dict[str, str]) -> bytes:
    """As vLLM and llama.cpp send a call: its name, then its arguments piece by piece."""
    text = json.dumps(arguments)
    parts = [{"id": "x1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}]
    parts += [{"function": {"arguments": text[i : i + 5]}} for i in range(0, len(text), 5)]
    return b"".join(delta({"tool_calls": [{"index": 0, **part}]}) for part in parts)


def as_object(arguments: dict[str, str]) -> bytes:
    """All at once, without an index, the arguments as an object."""
    return delta({"tool_calls": [{"id": "x1", "function": {"name": "get_weather", "arguments": arguments}}]})


def twice(arguments: dict[str, str]) -> bytes:
    """Two calls at a time, where one was asked for."""
    call = {"function": {"name": "get_weather", "arguments": json.dumps(arguments)}}
    return delta({"tool_calls": [{"index": i, "id": f"x{i}", **call} for i in (0, 1)]})


@contextmanager
def serving(call: Any, drafts: int | None) -> Iterator[tuple[str, list[bytes]]]:
    def answer(connection: Any, body: bytes, number: int) -> None:
        asked = json.loads(body)
        last, turns = asked["messages"][-1], len(asked["messages"])
        said = delta({"reasoning_content": "hm "}) if turns == 1 else b""
        if last["role"] == "tool":
            said += delta({"content": "It rains."})
        else:
            late = {"city": "Halle", "unit": "fahrenheit"}
            said += call({"city": "Leipzig"} if turns == 1 else late)
        told = {
            "choices": [],
            "usage": {"prompt_tokens": 9 * turns, "completion_tokens": 40, "total_tokens": 9 * turns + 40},
        }
        if drafts is not None:
            told["timings"] = {"draft_n": 40, "draft_n_accepted": drafts}
        end = delta({}, "tool_calls") + b"data: " + json.dumps(told).encode() + b"\n\ndata: [DONE]\n\n"
        if not asked["stream"]:
            connection.sendall(HEAD + said + end)
            return
        connection.sendall(HEAD + said)
        connection.sendall(end)

    with stub(answer) as served:
        yield served


@pytest.mark.parametrize(
    ("call", "decision", "passed"),
    [(in_parts, "serve", 16), (as_object, "serve", 16), (twice, "inconclusive", 0)],
)
def test_calls_that_come_apart_are_judged_and_handed_on(
    call: Any, decision: str, passed: int, tmp_path: Path
) -> None:
    (tmp_path / "gate.toml").write_text(POLICY)
    with serving(call, None) as (plain, asked), serving(call, 30) as (spec, _):
        argv = ["check", "--plain-url", plain, "--spec-url", spec, "--tasks", str(EXAMPLES), "--task", "weather",
                "--policy", str(tmp_path / "gate.toml"), "--out", str(tmp_path / "run"), "-q"]  # fmt: skip
        gate.main(argv, standalone_mode=False)
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert verdict["decision"] == decision, verdict["findings"]
    arms = {a["arm"]: a for a in verdict["tasks"][0]["arms"]}
    assert {a["score"]["passed"] for a in arms.values()} == {passed}
    bodies = [json.loads(one.partition(b"\r\n\r\n")[2]) for one in asked]
    second = next(b for b in bodies if len(b["messages"]) == 3)
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool"]
    assert '"city"' in second["messages"][1]["content"] and second["messages"][2]["tool_call_id"]
    assert all(b["tools"][0]["function"]["name"] == "get_weather" for b in bodies)
