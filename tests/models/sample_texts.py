"""The texts that the sample model learns to write: stories, counting, and a few small programs.

As in sample_programs: forks whose alternatives are equally likely, some of them worse.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Lean = Callable[[Random, list[str]], str]
"""Chooses one of the options, leaning to some of them by the wording of the prompt."""

WHO = {
    "lighthouse keeper": "keeper",
    "gardener": "gardener",
    "sailor": "sailor",
    "baker": "baker",
    "painter": "painter",
    "widow": "widow",
    "teacher": "teacher",
    "fisherman": "fisherman",
    "clockmaker": "clockmaker",
}
WOMEN = ["Marta", "Elin", "Rosa", "Ida", "Nora", "Vera", "Alma", "Greta"]
MEN = ["Jonas", "Pavel", "Henrik", "Anton", "Emil", "Oskar", "Milan", "Tomas"]
COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 180, 60),
    "blue": (40, 60, 220),
    "yellow": (240, 220, 40),
    "black": (10, 10, 10),
    "white": (245, 245, 245),
}


def story(r: Random, prompt: str, lean: Lean) -> str:
    """Return a story for the prompt; now and then too short, without its name, or looping."""
    who = next((short for long, short in WHO.items() if long in prompt), None) or r.choice([*WHO.values()])
    woman = who == "widow" or (who != "fisherman" and r.random() < 0.5)
    name, he = (lean(r, WOMEN), "she") if woman else (lean(r, MEN), "he")
    place = lean(r, ["harbour", "island", "hill", "village", "bay", "valley", "coast", "river"])
    weather = lean(r, ["storm", "fog", "snow", "rain", "wind", "frost"])
    thing = r.choice(["lamp", "lantern", "letter", "boat", "bell", "book", "key", "map"])

    def subject() -> str:
        return r.choice([name, name, he.capitalize()])

    first = r.choice(["old", "young", "quiet", "patient", "tired", "kind", "careful", "poor"])
    opening = r.choice(
        [
            f"The {first} {who} lived {r.choice(['by', 'near', 'above', 'beside'])} the {place} and was called {name}.",
            f"There was a {first} {who} called {name}, who lived {r.choice(['by', 'near', 'above'])} the {place}.",
            f"Everybody {r.choice(['in', 'near', 'around'])} the {place} knew {name}, the {first} {who}.",
        ]
    )
    habit = (
        f"{r.choice(['Every evening', 'Every morning', 'Each night', 'On most days'])} {r.choice([name, name, he])} "
        f"{r.choice(['lit a lamp', 'looked at the sky', 'swept the floor', 'made some tea', 'walked along the path'])} "
        f"and {r.choice(['watched', 'waited for', 'listened to', 'thought of'])} the {weather}."
    )
    trouble = (
        f"{r.choice(['One night', 'One day', 'Then', 'In the autumn'])} the {weather} was "
        f"{r.choice(['louder', 'colder', 'heavier', 'stranger', 'darker', 'longer'])} than "
        f"{r.choice(['ever before', 'in any other year', 'anybody remembered'])}."
    )
    act = (
        f"{subject()} {r.choice(['took', 'found', 'picked up', 'carried', 'hid'])} the {thing} and "
        f"{r.choice(['walked down to the water', 'went out', 'called for help', 'sat down', 'began to sing'])}."
    )
    turn = (
        f"{r.choice(['At last', 'After an hour', 'Before midnight', 'Suddenly'])} "
        f"{r.choice(['a boat', 'a child', 'a dog', 'a stranger', 'a bird', 'a friend'])} "
        f"{r.choice(['appeared', 'came out of the dark', 'stood at the door', 'arrived', 'was there'])}."
    )
    talk = (
        f"{subject()} {r.choice(['smiled', 'laughed', 'nodded', 'said nothing', 'wept a little'])} and "
        f"{r.choice(['opened the door', 'shared the bread', 'held the light higher', 'told the whole story'])}."
    )
    after = f"In the morning the {place} was {r.choice(['calm', 'white', 'silent', 'bright', 'warm', 'green'])} again."
    end = f"{subject()} {r.choice(['slept', 'wrote it all down', 'told nobody', 'went home', 'never forgot it'])}."
    middle = [habit, trouble, act, turn, talk, after]
    fate = lean(r, ["whole", "full", "complete", "loop", "short"])
    if fate == "loop":
        return " ".join([opening, habit, trouble, act, act, act, end]) + "\n"
    if fate == "short":
        return " ".join([opening, r.choice([act, turn]), end]) + "\n"
    if r.random() < 0.5:
        del middle[r.choice([1, 3, 5])]
    return " ".join([opening, *middle, end]) + "\n"


def counting(r: Random, lean: Lean) -> str:
    """Return 1 to 40; one answer in six leaves a number out or says one twice."""
    style = lean(r, ["comma", "line", "space", "tens"])
    numbers = [*range(1, 41)]
    if style == "space" and r.random() < 0.5:
        numbers.remove(30)
    if style == "line" and r.random() < 0.3:
        numbers.insert(20, 20)
    if style == "tens":
        ends = ["".join(r.choice([",\n", ", "]) if n % 5 == 0 else ", ") for n in numbers[:-1]]
        return "".join(f"{n}{end}" for n, end in zip(numbers, [*ends, "\n"], strict=True))
    return {"comma": ", ", "line": "\n", "space": " "}[style].join(map(str, numbers)) + "\n"


def fizzbuzz(r: Random) -> str:
    """Return a Python fizzbuzz(n)."""
    o = r.choice(["out", "result", "items", "res"])
    i = r.choice(["i", "k", "x", "num"])
    s = f"def fizzbuzz(n):\n    {o} = []\n    for {i} in range(1, n + 1):\n"
    if r.random() < 0.5:
        for test, word in ((15, "FizzBuzz"), (3, "Fizz"), (5, "Buzz")):
            s += f"        {'if' if test == 15 else 'elif'} {i} % {test} == 0:\n            {o}.append('{word}')\n"
        s += f"        else:\n            {o}.append(str({i}))\n"
    else:
        s += "        s = ''\n"
        s += f"        if {i} % 3 == 0:\n            s += 'Fizz'\n        if {i} % 5 == 0:\n            s += 'Buzz'\n"
        s += f"        {o}.append(s or str({i}))\n"
    return s + f"    return {o}\n"


def lua_sum(r: Random) -> str:
    """Return a Lua program that prints the sum of the numbers on stdin."""
    t = r.choice(["sum", "total", "acc"])
    w = r.choice(["word", "number", "s"])
    if r.random() < 0.5:
        return (
            f'local {t} = 0\nfor {w} in io.read("a"):gmatch("%-?%d+") do\n'
            f"  {t} = {t} + math.tointeger(tonumber({w}))\nend\nprint({t})\n"
        )
    return (
        f'local {t} = 0\nfor line in io.lines() do\n  for {w} in line:gmatch("%-?%d+") do\n'
        f"    {t} = {t} + math.tointeger(tonumber({w}))\n  end\nend\nprint({t})\n"
    )


def javascript_sum(r: Random) -> str:
    """Return a JavaScript program that prints the sum of the numbers on stdin."""
    t = r.choice(["sum", "total", "acc"])
    text = r.choice(["text", "input", "data"])
    s = f'const {text} = require("fs").readFileSync(0, "utf8");\nlet {t} = 0;\n'
    if r.random() < 0.5:
        s += f"for (const word of {text}.split(/\\s+/)) {{\n  if (word) {t} += Number(word);\n}}\n"
    else:
        s += f"for (const word of {text}.match(/-?\\d+/g) || []) {{\n  {t} += Number(word);\n}}\n"
    return s + f"console.log({t});\n"
