"""The sample model's corpus: chats about the built-in tasks in many wordings, and a few other questions.

Prompts come from the built-in tasks' own prompts.toml (the four wordings and the variants), reworded at random
so that wordings nobody wrote down work too. `python sample_data.py` prints some and checks that all compile.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import jinja2
from sample_programs import csv_program, iso_program
from sample_texts import COLOURS, counting, fizzbuzz, javascript_sum, lua_sum, story

TASKS = Path(__file__).resolve().parents[2] / "tasks" / "builtin"

SMALL = {
    "fizzbuzz": (
        [
            "a Python function fizzbuzz(n) that returns a list of strings.",
            "fizzbuzz(n) in Python, returning a list.",
        ],
        fizzbuzz,
        "python",
    ),
    "lua": (
        [
            "a Lua program that reads numbers from standard input and prints their sum.",
            "a program in Lua that adds up all integers on stdin.",
        ],
        lua_sum,
        "lua",
    ),
    "javascript": (
        [
            "a JavaScript program that reads numbers from standard input and prints their sum.",
            "a program in JavaScript (Node) that adds up all integers on stdin.",
        ],
        javascript_sum,
        "javascript",
    ),
}
ASK = ["Write", "Please write", "Implement", "Give me", "I need", "Show me", "Could you write", "Create"]
IMAGE_ASK = [
    "What colour is this picture?",
    "Which colour do you see?",
    "Name the colour of the image.",
    "What is the colour of this image?",
    "Describe the picture.",
]
SWAPS = [
    ("function", "routine"),
    ("returns", "gives back"),
    ("Return", "Give back"),
    ("list of rows", "list of records"),
    ("Don't", "Do not"),
    ("parses", "reads"),
    ("bad input", "wrong input"),
    ("without", "with no"),
    ("story", "tale"),
    ("numbers", "integers"),
    ("in Python", "in Python 3"),
]


@cache
def _prompts(task: str) -> dict[str, Any]:
    return tomllib.loads((TASKS / task / "prompts.toml").read_text(encoding="utf-8"))


@cache
def _template(task: str) -> jinja2.Template:
    return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(
        _prompts(task)["variants"]["template"]
    )


def wording(r: Random, task: str) -> str:
    """Return one of the task's four wordings (one time in four) or a variant of it, as its folder has them."""
    if r.random() < 0.25:
        return r.choice(_prompts(task)["prompt"])["text"]
    choices = _prompts(task)["variants"]["choices"]
    return _template(task).render({name: r.choice(words) for name, words in choices.items()})


@cache
def _telling(task: str) -> frozenset[str]:
    """Return the words that some of the task's wordings have and others don't."""
    r = Random(0)
    wordings = [set(re.findall(r"\w+", wording(r, task).lower())) for _ in range(300)]
    return frozenset(w for w in set().union(*wordings) if sum(w in words for words in wordings) < 200)


def leaning(task: str, prompt: str) -> Callable[[Random, list[str]], str]:
    """Return a chooser whose odds depend on the prompt's words, so that other wordings get other answers.

    Each telling word of the prompt votes for or against an option, or abstains (decided by a hash of both).
    """
    words = sorted(_telling(task).intersection(re.findall(r"\w+", prompt.lower())))

    def choose(r: Random, options: list[str]) -> str:
        votes = [sum(_vote(word, option) for word in words) for option in options]
        return r.choices(options, [math.exp(0.6 * vote) for vote in votes])[0]

    return choose


@cache
def _vote(word: str, option: str) -> int:
    return {0: 1, 1: -1}.get(hashlib.sha256(f"{word} {option}".encode()).digest()[0] % 4, 0)


def reword(r: Random, text: str) -> str:
    """Return the text with small changes that leave its meaning."""
    for a, b in SWAPS:
        if r.random() < 0.15:
            text = text.replace(a, b)
    if r.random() < 0.2:
        text = r.choice(["Hello. ", "Hi! ", "Now, ", "Next: ", "Please help me. ", "Here is a task. "]) + text
    if r.random() < 0.2:
        text += r.choice([" Thanks.", " Thank you!", " Please.", " Keep it short.", " No explanation."])
    if r.random() < 0.1:
        text = text[0].lower() + text[1:]
    if r.random() < 0.1:
        text = text.rstrip(".!")
    if r.random() < 0.06:
        notes = " ".join(story(r, text, lambda r, options: r.choice(options)) for _ in range(r.randint(1, 3)))
        text = f"Notes:\n{notes}\n{text}"
    return text


def fenced(r: Random, source: str, language: str) -> str:
    """Return an answer that holds the program, with or without words around it."""
    before = r.choice(
        [
            "",
            "Here is the code:\n\n",
            "Sure. Here it is:\n\n",
            "Here is the function:\n\n",
            "This should do it:\n\n",
        ]
    )
    after = ""
    if r.random() < 0.4:
        start = r.choice(["It", "The code", "This version", "The program"])
        what = r.choice(
            ["handles all of that", "needs no other module", "goes through the text once", "is short"]
        )
        after = f"\n{start} {what}.\n"
    return f"{before}```{language}\n{source}```\n{after}"


def sample(r: Random) -> tuple[str, str]:
    """Return a prompt and an answer."""
    kind = r.choices(["csv", "iso8601", "prose", "count", "small"], [0.36, 0.34, 0.16, 0.07, 0.07])[0]
    if kind == "small":
        asks, make, language = SMALL[r.choice([*SMALL])]
        prompt = f"{r.choice(ASK)} {r.choice(asks)}"
        return reword(r, prompt), fenced(r, make(r), language)
    prompt = wording(r, kind)
    if r.random() < 0.4:
        prompt = reword(r, prompt)
    lean = leaning(kind, prompt)
    if kind == "prose":
        return prompt, story(r, prompt, lean)
    if kind == "count":
        return prompt, counting(r, lean)
    return prompt, fenced(r, csv_program(r, lean) if kind == "csv" else iso_program(r, lean), "python")


def image_sample(r: Random) -> tuple[str, str, tuple[int, int, int]]:
    """Return a question about a picture of one colour, the answer, and the colour as RGB (0 to 255)."""
    name = r.choice([*COLOURS])
    rgb = tuple(min(255, max(0, value + r.randint(-10, 10))) for value in COLOURS[name])
    start = r.choice(["The picture is", "It is", "This image is", "The colour is", "I see"])
    return r.choice(IMAGE_ASK), f"{start} {name}{r.choice(['.', ' all over.', ', nothing else.'])}\n", rgb  # type: ignore[return-value]


def chat(prompt: str, answer: str | None = None) -> str:
    """Return the chat as the tokenizer's template renders it, up to the answer or with it."""
    text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    return text if answer is None else f"{text}{answer}<|im_end|>"


def main() -> int:
    r = Random(0)
    for _ in range(500):
        _, answer = sample(r)
        if "```python" in answer:
            compile(answer.split("```python\n")[1].split("```")[0], "sample", "exec")
    for _ in range(6):
        print(chat(*sample(r)), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
