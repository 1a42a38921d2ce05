"""Threat: what is graded is not what the model answered.

A draft from the thinking part, a sketch, a shell line, half a program: graded as the answer they cost a right model its
score, or hide that the budget cut it off (omlx#2661). The table D02 is the field's; the rest are the same fault's kin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.extract import Extracted, extract
from evals.fences import MAX_CHARACTERS, blocks
from evals.thinking import final_part

D02 = json.loads((Path(__file__).parents[1] / "fixtures/D02.json").read_text())["repro"]["cases"]
ENTRY = {"think draft, sketch, final, shell": "f", "two-cell answer": "g"}
F = "def f(x):\n    return x * 2\n"
FENCED = f"```python\n{F}```\n"


@pytest.mark.parametrize("case", D02, ids=lambda c: c["name"])
@pytest.mark.parametrize("with_entry", [True, False])
def test_the_table_of_the_field(case: dict[str, Any], with_entry: bool) -> None:
    entry = ENTRY.get(case["name"]) if with_entry else None
    got = extract(case["text"], entry=entry, truncated=case.get("finish") == "length")
    if "accept" in case:
        assert got.program in case["accept"]
        return
    assert got.program == case["program"]
    if case["program"] is None:
        assert case["reason"] in got.reason and got.truncated


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (FENCED, F),
        (FENCED[:-1], F),
        (f"a\n\n{FENCED}\n\nb", F),
        (f"```python\n{F}", F),
        (f"> ```python\n> {F.replace(chr(10), chr(10) + '> ', 1)}> ```\n", F),
        (f"```{{.python}}\n{F}```\n", F),
        (f"```python:main.py\n{F}```\n", F),
        (f"```PY\n{F}```\n", F),
        (f"```\n{F}```\n```bash\npython f.py\n```\n", F),
        (f"```python\nprint(f(1))\n```\n```\n{F}```\n", F),
        (f"```text\ndef f(x): no\n```\n{FENCED}", F),
        (FENCED + "Output:\n```\n4\n```\n", F),
        (FENCED + "Usage:\n```python\nprint(f(1))\n```\n", F),
        (f"```python\ndef f(x):\n    return x\n```\nBetter:\n{FENCED}", F),
        (f"```python\nimport math\n```\n{FENCED}", F),
        (
            "```python\nimport math as m\n```\n```python\ndef f(x):\n    return m.pi\n```\n",
            "import math as m\n\ndef f(x):\n    return m.pi\n",
        ),
        (
            "```python\ndef g(x):\n    return 2\n```\n```python\ndef f(x):\n    return x * g(x)\n```\n",
            "def g(x):\n    return 2\n\ndef f(x):\n    return x * g(x)\n",
        ),
        (
            "```python\ndef f(x):\n    return x * g(x)\n```\nwith\n```python\ndef g(x):\n    return 2\n```\n",
            "def f(x):\n    return x * g(x)\n\ndef g(x):\n    return 2\n",
        ),
        (
            "```python\nif True:\n    def f(x):\n        return 1\n```\n",
            "if True:\n    def f(x):\n        return 1\n",
        ),
        ("```python\nf = lambda x: x * 2\n```\n```python\nprint(f(2))\n```\n", "f = lambda x: x * 2\n"),
        (f"1. Do:\n   ```python\n   {F.replace(chr(10), chr(10) + '   ', 1)}```\n2. And so on\n", F),
        (
            f"1. Do:\n   ```python\n   {F.replace(chr(10), chr(10) + '   ', 1)}```\nNow:\n```python\nf(1)\n```\n",
            F,
        ),
        ("1. Sketch:\n   ```python\n   # f\n```\nNow:\n" + FENCED, F),
        (F, F),
        (f"\n\n{F}\n", F),
    ],
)
def test_the_program_is_found(text: str, program: str) -> None:
    assert extract(text, entry="f") == Extracted(program)


@pytest.mark.parametrize(
    ("text", "truncated", "reason"),
    [
        ("", False, "no python code block"),
        ("I can't.", False, "no python code block"),
        ("```python\n\n```\n", False, "no python code block"),
        ("```python\n", False, "empty"),
        ("```python\n", True, "truncated"),
        ("Call f(x), def f as you like.", False, "no python code block"),
        ("```c++\nint f;\n```\n```bash\nls\n```", False, "but bash, c++"),
        ("Let me see", True, "before a python code block"),
        ("```python\nx = 1\n```\nand then", True, "defines f"),
        (f"```python\n{F}```\nBetter:\n```python\ndef f(x):\n    ret", True, "inside the code block"),
        (F[:-6], True, "inside the code"),
        ("<think>\nhm", True, "truncated in thinking"),
        ("<think>\nhm", False, "never closed"),
        (f"<think>\na\n</think>\n<think>\n{FENCED}", True, "truncated in thinking"),
        ("x" * (MAX_CHARACTERS + 1), False, "at most"),
    ],
)
def test_no_program_and_why(text: str, truncated: bool, reason: str) -> None:
    got = extract(text, entry="f", truncated=truncated)
    assert got.program is None and reason in got.reason and got.truncated == truncated


@pytest.mark.parametrize("tail", ["```bash\npython", "```python\nprint(f(", "So it", "Output:\n```\n4"])
def test_a_whole_program_counts_though_the_words_after_it_were_cut(tail: str) -> None:
    assert extract(FENCED + tail, entry="f", truncated=True) == Extracted(F)


@pytest.mark.parametrize(
    "thinking",
    [
        "<think>\nhm\n</think>\n",
        "<think>hm</think>",
        "hm, so\n</think>\n\n",
        "<think>\n```python\ndef f(x):\n    return 0\n```\n</think>\n",
        "<think>\n```python\ndef f(x):\n    return 0\nno, wait.\n</think>\n",
        "```python\ndef f(x):\n    return 0\nno, wait.\n</think>\n",
        "<think>\nthe tag `</think>` ends it\n```python\nprint('</think>')\n```\nyes\n</think>\n",
        "<think>\na\n</think>\n<think>\n```python\ndef f(x):\n    return 0\n```\n</think>\n",
    ],
)
@pytest.mark.parametrize("after", ["", "It needs no '</think>', no \"<think>\" and no `</think>`.\n"])
def test_thinking_is_left_out(thinking: str, after: str) -> None:
    assert extract(thinking + "Here:\n" + FENCED + after, entry="f") == Extracted(F)


def test_a_tag_in_the_program_stays() -> None:
    program = 'def f(x):\n    return x.split("<think>")[0] + """\n</think>\n"""\n'
    assert extract(f"<think>\nhm\n</think>\n```python\n{program}```\n", entry="f").program == program


@pytest.mark.parametrize(
    ("language", "tag", "code", "other"),
    [
        ("lua", "lua", "local function f(x)\n  return x\nend\n", "print(f(1))\n"),
        ("lua", "Lua5", "f = function(x) return x end\n", "print(f(1))\n"),
        ("javascript", "js", "function f(x) { return x }\n", "console.log(f(1))\n"),
        ("javascript", "javascript", "const f = (x) => x;\n", "console.log(f(1))\n"),
        ("javascript", "node", "module.exports.f = (x) => x;\n", "console.log(f(1))\n"),
    ],
)
def test_other_languages(language: Any, tag: str, code: str, other: str) -> None:
    text = f"```python\n{F}```\n```{tag}\n{code}```\n```{tag}\n{other}```\n"
    assert extract(text, language=language, entry="f").program == code


@pytest.mark.parametrize(
    "unit",
    [
        "`",
        "```\n",
        "~~~~\n",
        "> ",
        "- ",
        "1. ",
        "</think>",
        "<think>\n",
        "\n</think>\n```py\n",
        "def f",
        "import (",
        "from a import (b,\n",
        "    ",
        "\t",
        "[](",
        "```py\nX = Y\n```\n",
        "`</think>`",
        "A ",
        "- ```py\n",
        "é\u202e\0",
    ],
)
def test_hostile_text_ends(unit: str) -> None:
    for truncated in (False, True):
        extract(unit * (200_000 // len(unit)), entry="f", truncated=truncated)


PIECES = [
    "```",
    "```python\n",
    "~~~\n",
    "\n",
    "<think>",
    "</think>",
    "def f(x):\n",
    "    return 1\n",
    "> ",
    "- ",
    "\r\n",
    "x",
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=25),
    st.booleans(),
    st.sampled_from(["f", None]),
)
def test_any_text_gives_a_program_or_a_reason(pieces: list[str], truncated: bool, entry: str | None) -> None:
    text = "".join(pieces)
    got = extract(text, entry=entry, truncated=truncated)
    assert (got.program is None) == bool(got.reason)
    assert not got.truncated or got.program is None
    if got.program is not None:
        assert "\r" not in got.program and got.program.endswith("\n")
    final = final_part(text)
    assert len(final.text) <= len(text)
    assert all(b.start < b.stop for b in blocks(final.text))
