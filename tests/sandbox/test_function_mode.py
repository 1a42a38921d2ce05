"""The threat: a value that changes on its way out of the sandbox, a crash that takes its neighbours' grades with it,
and a reply believed though it isn't the driver's.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Outcome, Program, SandboxUnavailable, SessionEnded, Status
from sandbox.drivers.python_driver import DEPTH, Malformed, Unsupported, decode, encode
from sandbox.function_mode import CallOutcome, CallResult, run_function

LIMITS = Limits(wall_s=20, cpu_s=10)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.recursive(
    SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
VALUES = st.recursive(
    SCALARS | KEYS,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS),
    max_leaves=12,
)


def same(left: object, right: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)  # type: ignore[arg-type]
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))  # type: ignore[arg-type]
    return left == right


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_every_plain_value_comes_back_as_it_was(value: object) -> None:
    assert same(decode(encode(value)), value)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_value_are_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        value = decode(data)
    except Malformed:
        return
    decode(encode(value))


@settings(max_examples=50, deadline=None)
@given(VALUES, st.data())
def test_a_cut_or_changed_value_is_another_or_refused(value: object, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(Malformed):
        decode(encoded[:cut])
    with pytest.raises(Malformed):
        decode(encoded + b"n")


@pytest.mark.parametrize(
    "data",
    [
        b"l99999999999;", b"l5;n", b"s5:abc", b"s-1:", b"i;", b"ix;", b"d00", b"q", b"", b"e1;l0;", b"m1;l0;n", b"m1;n",
        b"l1;" * (DEPTH + 2) + b"n", b"s 1:a", b"s+1:a", b"l\xb2;nn", b"e3;" + b"q" * 9,
    ],
)  # fmt: skip
def test_malformed_values(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(data)


def test_keys_that_collide_are_refused_in_linear_time() -> None:
    keys = {number * (2**61 - 1) for number in range(100)}
    with pytest.raises(Malformed, match="collide"):
        decode(encode(keys))
    assert decode(encode(set(range(100000)))) == set(range(100000))


@pytest.mark.parametrize(
    "value",
    [
        type("Sub", (int,), {})(5),
        type("Sub", (str,), {})("x"),
        type("Sub", (list,), {})(),
        object(),
        1j,
        range(3),
        len,
        int,
    ],
    ids=repr,
)
def test_only_exact_built_in_types_are_sent(value: object) -> None:
    for nested in (value, [value], {"k": value}, (value,)):
        with pytest.raises(Unsupported):
            encode(nested)


def test_one_call_that_crashes_does_not_take_the_others_down(bubblewrap: Bubblewrap) -> None:
    source = b"""
import os, time
def f(x):
    if x == 1: os._exit(0)
    if x == 3: os.kill(os.getpid(), 11)
    if x == 4: raise KeyError(x)
    if x == 5: return object()
    if x == 6: return bytearray(b'x') * (999 << 20)
    if x == 7: return 'x' * (2 << 20)
    if x == 8:
        while True: pass
    return x
"""
    limits = Limits(wall_s=20, cpu_s=1, memory_bytes=128 << 20)
    results = run_function(bubblewrap, source, "f", [(number,) for number in range(10)], limits)
    assert [result.outcome.value for result in results] == [
        "returned", "crash", "returned", "crash", "raised", "raised", "killed", "output_limit", "timeout", "returned",
    ]  # fmt: skip
    assert [result.value for result in results if result.outcome is CallOutcome.RETURNED] == [0, 2, 9]
    assert results[4].error == "KeyError"
    assert "object" in results[5].detail
    assert results[8].limit == "cpu_s"


def test_restarts_are_bounded_and_the_rest_is_no_pass(bubblewrap: Bubblewrap) -> None:
    source = b"import os\ndef f(x): os._exit(x)"
    results = run_function(
        bubblewrap, source, "f", [(number,) for number in range(20)], LIMITS, max_restarts=2
    )
    assert len(results) == 20
    assert {result.outcome for result in results} == {CallOutcome.CRASH}


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (b"def f(:", "SyntaxError"),
        (b"raise KeyError", "KeyError"),
        (b"import sys; sys.exit(0)", "SystemExit"),
        (b"x = 1", "AttributeError"),
        (b"import module_that_is_not_there", "ModuleNotFoundError"),
        (b"\xff\xfe", "SyntaxError"),
        (b"def f(): pass\n" + b"x = " + b"(" * 5000, "SyntaxError"),
    ],
)
def test_a_program_that_cannot_be_loaded_fails_every_call_alike(
    bubblewrap: Bubblewrap, source: bytes, error: str
) -> None:
    results = run_function(bubblewrap, source, "f", [(1,), (2,)], LIMITS)
    assert [(result.outcome, result.error) for result in results] == [(CallOutcome.RAISED, error)] * 2
    assert "while loading" in results[0].detail


def test_a_program_that_exits_while_loading_is_a_crash(bubblewrap: Bubblewrap) -> None:
    results = run_function(
        bubblewrap, b"import os\nprint('12 passed')\nos._exit(0)", "f", [(1,), (2,)], LIMITS
    )
    assert [result.outcome for result in results] == [CallOutcome.CRASH] * 2


def test_limits_hold_for_each_call(bubblewrap: Bubblewrap) -> None:
    source = (
        b"import time\ndef f(x):\n    end = time.process_time() + 0.3\n"
        b"    while time.process_time() < end: pass\n    return x"
    )
    results = run_function(
        bubblewrap, source, "f", [(number,) for number in range(5)], Limits(wall_s=20, cpu_s=0.8)
    )
    assert [result.value for result in results] == list(range(5))


def test_what_a_program_prints_is_no_answer(bubblewrap: Bubblewrap) -> None:
    source = (
        b"import sys\nprint('hello')\ndef f(x):\n    print('1 r 3')\n    sys.stdout.flush()\n"
        b"    sys.stderr.write('e')\n    return x"
    )
    assert run_function(bubblewrap, source, "f", [(1,), (2,)], LIMITS)[1] == CallResult(
        CallOutcome.RETURNED, value=2
    )


def test_state_lives_from_call_to_call_in_one_process(bubblewrap: Bubblewrap) -> None:
    source = b"n = 0\ndef f():\n    global n\n    n += 1\n    return n"
    assert [result.value for result in run_function(bubblewrap, source, "f", [()] * 3, LIMITS)] == [1, 2, 3]


def test_dataclasses_and_annotations_work_in_a_program(bubblewrap: Bubblewrap) -> None:
    source = (
        b"from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import Counter\n"
        b"import collections, pickle\n@dataclass\nclass P:\n    x: int\n"
        b"def f(x: list[int]) -> dict:\n    pickle.dumps(P(1))\n    return collections.Counter(P(v).x for v in x)\n"
    )
    assert run_function(bubblewrap, source, "f", [([1, 1, 2],)], LIMITS)[0].value == {1: 2, 2: 1}


def test_no_calls_need_no_sandbox() -> None:
    assert run_function(Down(), b"", "f", [], LIMITS) == []  # type: ignore[arg-type]


class Forger:
    """A sandbox whose program has taken the driver's place: it answers each question with what it was told to, in
    which IDENTITY stands for the question's id.
    """

    name = "forger"

    def __init__(self, *replies: bytes):
        self._replies, self._asked = list(replies), b""

    def open(self, program: Program, limits: Limits) -> Forger:
        return self

    def restart_clock(self) -> None:
        pass

    def send(self, data: bytes) -> None:
        self._asked = data.split(b" ")[0]

    def receive(self) -> bytes:
        if not self._replies:
            raise SessionEnded(Outcome(status=Status.EXITED, exit_code=0))
        return self._replies.pop(0).replace(b"IDENTITY", self._asked)

    def close(self) -> None:
        pass


LOADED = b"IDENTITY r 1\nn"


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (b"IDENTITY r 3\ni5;", "returned"),
        (b"1 r 3\ni5;", "crash"),
        (b"0IDENTITY r 3\ni5;", "crash"),
        (b"IDENTITY r 3\ni5;IDENTITY r 3\ni5;", "crash"),
        (b"IDENTITY r 3\ni5;x", "crash"),
        (b"IDENTITY r 2\ni5;", "crash"),
        (b"IDENTITY r 99999999\ni5;", "output_limit"),
        (b"IDENTITY r 9999999999\ni5;", "crash"),
        (b"IDENTITY x 3\ni5;", "crash"),
        (b"IDENTITY r -3\ni5;", "crash"),
        (b"IDENTITY r 3 \ni5;", "crash"),
        (b"\nIDENTITY r 3\ni5;", "crash"),
        (b"x" * 1000, "crash"),
        (b"IDENTITY r 4\ni5;", "crash"),
        (b"IDENTITY e 2\n\xff\xfe", "raised"),
        (b'{"passed": true}\n', "crash"),
    ],
)
def test_only_the_drivers_own_reply_counts(reply: bytes, outcome: str) -> None:
    (result,) = run_function(Forger(LOADED, reply), b"", "f", [()], LIMITS)  # type: ignore[arg-type]
    assert result.outcome == outcome, result


def test_a_reply_in_pieces_is_put_together() -> None:
    pieces = [b"IDENT", b"ITY r 3", b"\ni", b"5", b";"]
    (result,) = run_function(Forger(LOADED, b"".join(pieces[:2]), *pieces[2:]), b"", "f", [()], LIMITS)  # type: ignore[arg-type]
    assert result == CallResult(CallOutcome.RETURNED, value=5)


def test_a_late_reply_is_not_taken_for_the_next_question() -> None:
    class Late(Forger):
        def receive(self) -> bytes:
            reply = super().receive()
            self.first = getattr(self, "first", self._asked)
            return reply.replace(b"FIRST", self.first)

    results = run_function(Late(LOADED, b"FIRST r 3\ni5;"), b"", "f", [()], LIMITS, max_restarts=0)  # type: ignore[arg-type]
    assert results[0].outcome is CallOutcome.CRASH


class Down:
    """A sandbox whose daemon is gone: the fault that has to be made."""

    name = "down"

    def open(self, program: Program, limits: Limits) -> object:
        raise SandboxUnavailable("docker: no daemon answers")


def test_a_sandbox_that_is_down_is_infra_and_as_many_results_as_calls() -> None:
    results = run_function(Down(), b"def f(): pass", "f", [()] * 12, LIMITS)  # type: ignore[arg-type]
    assert len(results) == 12
    assert {(result.outcome, result.detail) for result in results} == {
        (CallOutcome.INFRA, "docker: no daemon answers")
    }


@pytest.mark.system("lua")
def test_lua_values(bubblewrap: Bubblewrap) -> None:
    source = b"function f(...) local t = {...} return t[1] end"
    values = [True, 0, -(2**63), 2**63 - 1, 0.1, float("-inf"), "é", b"\xff", [1, [2]], {"a": {"b": 3}}]
    results = run_function(bubblewrap, source, "f", [(value,) for value in values], LIMITS, "lua")
    assert all(same(result.value, value) for result, value in zip(results, values, strict=True)), results
    assert run_function(bubblewrap, source, "f", [(2**70,)], LIMITS, "lua")[0].outcome is CallOutcome.RAISED
    assert (
        run_function(bubblewrap, b"function f(a, b) return b end", "f", [(None, 1)], LIMITS, "lua")[0].value
        == 1
    )


@pytest.mark.system("lua")
@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        (b"function f() error({}) end", "raised"),
        (b"function f() os.exit(0) end", "crash"),
        (b"function f() return f end", "raised"),
        (b"function f() local t = {} t.t = t return t end", "raised"),
        (b"function f() print('1 r 3') io.write('x') io.stdout:write('y') return 1 end", "returned"),
        (b"not lua", "raised"),
        (b"function g() end", "raised"),
        (b"return { f = function() return 1 end }", "returned"),
        (b"function f() while true do end end", "timeout"),
        (b"function f() coroutine.wrap(function() error('x') end)() end", "raised"),
    ],
)
def test_lua_ends(bubblewrap: Bubblewrap, source: bytes, outcome: str) -> None:
    (result,) = run_function(bubblewrap, source, "f", [()], Limits(wall_s=20, cpu_s=0.5), "lua")
    assert result.outcome == outcome, result


@pytest.mark.system("node")
def test_javascript_values(bubblewrap: Bubblewrap) -> None:
    source = b"const f = (x) => x;"
    values = [
        None,
        True,
        0,
        2**53 - 1,
        -(2**70),
        0.1,
        -0.0,
        float("inf"),
        "é",
        b"\xff",
        [1, [2]],
        {"a": {"__proto__": 3}},
        {1, 2},
    ]
    results = run_function(bubblewrap, source, "f", [(value,) for value in values], LIMITS, "javascript")
    assert all(same(result.value, value) for result, value in zip(results, values, strict=True)), results


@pytest.mark.system("node")
@pytest.mark.parametrize(
    ("source", "outcome", "error"),
    [
        (b"function f() { throw new RangeError('x') }", "raised", "RangeError"),
        (b"function f() { process.exit(0) }", "crash", ""),
        (b"function f() { return f }", "raised", "TypeError"),
        (b"function f() { const t = {}; t.t = t; return t }", "raised", "TypeError"),
        (b"function f() { console.log('1 r 3'); process.stdout.write('x'); return 1 }", "returned", ""),
        (b"not javascript", "raised", "SyntaxError"),
        (b"function g() {}", "raised", "ReferenceError"),
        (b"module.exports = { f: async () => 1 }", "returned", ""),
        (b"async function f() { throw null }", "raised", "object"),
        (b"function f() { for (;;); }", "timeout", ""),
        (b"function f() { class Y {} return new Y() }", "raised", "TypeError"),
    ],
)
def test_javascript_ends(bubblewrap: Bubblewrap, source: bytes, outcome: str, error: str) -> None:
    limits = Limits(wall_s=20, cpu_s=2)
    (result,) = run_function(bubblewrap, source, "f", [()], limits, "javascript")
    assert (result.outcome, result.error) == (outcome, error), result
