"""More wordings of one question, made from its template: the same seed gives the same ones on every machine.

A template may only put words in places. Loops, calls and arithmetic are refused, so that a folder from anybody can
neither run code nor grow without end.
"""

from __future__ import annotations

import hashlib
import re
from functools import reduce
from pathlib import Path
from typing import Final

import jinja2.exceptions
import jinja2.nodes as nodes
from jinja2.sandbox import SandboxedEnvironment

from tasks.errors import TaskError
from tasks.types import Prompt, Task, Variants

MAX_TEMPLATE_CHARACTERS: Final = 20_000
MAX_VARIABLES: Final = 32
MAX_CHOICES: Final = 200
MAX_WORD_CHARACTERS: Final = 2_000
MAX_VARIANTS: Final = 10_000

VARIANT_ID: Final = re.compile(r"v\d+-\d+")
_ALLOWED: Final = (nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name)
_ENUMERATED: Final = 20_000
"""Up to so many combinations all are listed; above, some are drawn, and as good as none is drawn twice."""


def variants(task: Task, n: int, seed: int) -> tuple[Prompt, ...]:
    """`n` wordings made from the task's template, no two alike and none like the task's own prompts.

    The first of `n` are the same for every larger `n`. Raises TaskError where the task has no template, where `n` is
    not from 1 to 10,000 or `seed` is negative, and where the template has fewer wordings to give.
    """
    place = task.path / "prompts.toml"
    if task.variants is None:
        raise TaskError(
            f"{place}: expected a [variants] template to make {n} wordings from, found none; add one"
        )
    if not 1 <= n <= MAX_VARIANTS or seed < 0:
        raise TaskError(
            f"{task.name}: expected 1 to {MAX_VARIANTS:,} variants and a seed that isn't negative, "
            f"found {n} and {seed}; choose others"
        )
    template = SandboxedEnvironment().from_string(task.variants.template)
    choices = sorted(task.variants.choices.items())
    total = reduce(lambda product, item: product * len(item[1]), choices, 1)
    seen = {_plain(prompt.text) for prompt in task.prompts}
    made: list[Prompt] = []
    for index in _order(total, n, seed):
        words: dict[str, str] = {}
        for name, options in choices:
            index, which = divmod(index, len(options))
            words[name] = options[which]
        text = template.render(words)
        if _plain(text) and _plain(text) not in seen:
            seen.add(_plain(text))
            made.append(Prompt(id=f"v{seed}-{len(made) + 1:03d}", text=text, image=task.variants.image))
            if len(made) == n:
                return tuple(made)
    raise TaskError(
        f"{place}: expected {n} wordings from the template, found {len(made)} that differ from each other and from "
        "the prompts; ask for fewer or add words to [variants.choices]"
    )


def check_variants(spec: Variants, place: Path) -> None:
    """Raises TaskError where the template isn't plain words in places, or its choices don't match its places."""
    if len(spec.template) > MAX_TEMPLATE_CHARACTERS or not spec.template.strip():
        raise TaskError(
            f"{place}: expected a template of 1 to {MAX_TEMPLATE_CHARACTERS:,} characters; rewrite it"
        )
    try:
        tree = SandboxedEnvironment().parse(spec.template)
    except (jinja2.exceptions.TemplateError, RecursionError, ValueError) as error:
        raise TaskError(
            f"{place}: expected a jinja2 template, found {ascii(str(error))[:200]}; correct it"
        ) from None
    pending: list[nodes.Node] = [tree]
    places: set[str] = set()
    while pending:
        node = pending.pop()
        if not isinstance(node, _ALLOWED):
            raise TaskError(
                f"{place}: expected a template with nothing but words and {{{{ names }}}}, "
                f"found {type(node).__name__.lower()} in line {node.lineno}; write it out in [variants.choices]"
            )
        if isinstance(node, nodes.Name):
            places.add(node.name)
        pending.extend(node.iter_child_nodes())
    if places != set(spec.choices):
        odd = ", ".join(sorted(places ^ set(spec.choices)))[:200]
        raise TaskError(
            f"{place}: expected [variants.choices] to have the names of the template, found a difference in {odd!a}; "
            "add or remove it"
        )
    if not places or len(places) > MAX_VARIABLES:
        raise TaskError(
            f"{place}: expected 1 to {MAX_VARIABLES} names in the template, found {len(places)}; change it"
        )
    for name, options in spec.choices.items():
        longest = max(map(len, options), default=0)
        if not 1 <= len(options) <= MAX_CHOICES or longest > MAX_WORD_CHARACTERS or "\0" in "".join(options):
            raise TaskError(
                f"{place}: expected 1 to {MAX_CHOICES} choices of at most {MAX_WORD_CHARACTERS:,} characters for "
                f"{name!a}, found {len(options)}, the longest of {longest:,}; change them"
            )


def _order(total: int, n: int, seed: int) -> list[int]:
    """Indices of combinations in an order that only the seed decides, Python's version doesn't."""
    if total <= _ENUMERATED:
        return sorted(range(total), key=lambda i: _draw(seed, i))
    return [_draw(seed, i) % total for i in range(2 * n + 100)]


def _draw(seed: int, i: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{i}".encode()).digest())


def _plain(text: str) -> str:
    return " ".join(text.split())
