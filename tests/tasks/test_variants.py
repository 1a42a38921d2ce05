"""Threat: generated wordings that repeat, that change from machine to machine, or a template that runs code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tasks.folder import TaskError, builtin_tasks
from tasks.types import Task, Variants
from tasks.variants import check_variants, variants

PLACE = Path("prompts.toml")


def task(template: str, **choices: list[str]) -> Task:
    return msgspec.structs.replace(builtin_tasks()[0], variants=Variants(template, choices))


def test_the_same_seed_gives_the_same_wordings_on_every_machine() -> None:
    made = variants(task("{{a}} {{b}}", a=["x", "y", "z"], b=["1", "2"]), 6, 7)
    assert [p.text for p in made] == ["y 2", "x 2", "z 1", "y 1", "z 2", "x 1"]
    assert [p.id for p in made][:2] == ["v7-001", "v7-002"]


@pytest.mark.parametrize("name", ["csv", "iso8601", "prose", "count"])
def test_wordings_differ_from_each_other_and_from_the_prompts(name: str) -> None:
    (chosen,) = (t for t in builtin_tasks() if t.name == name)
    made = variants(chosen, 100, 1)
    assert len({p.text for p in made} | {p.text for p in chosen.prompts}) == 100 + len(chosen.prompts)
    assert variants(chosen, 20, 1) == made[:20]
    assert [p.text for p in variants(chosen, 20, 2)] != [p.text for p in made[:20]]


def test_a_prompt_of_the_task_is_not_given_again() -> None:
    own = builtin_tasks()[0].prompts[0].text
    assert [p.text for p in variants(task("{{a}}", a=[own, "other"]), 1, 0)] == ["other"]


def test_too_few_wordings_are_said_and_not_repeated() -> None:
    with pytest.raises(TaskError, match=r"expected 3 wordings .* found 2"):
        variants(task("{{a}}", a=["x", "y", " x"]), 3, 0)


@pytest.mark.parametrize(("n", "seed"), [(0, 0), (-1, 0), (10_001, 0), (1, -1)])
def test_numbers_out_of_range_are_refused(n: int, seed: int) -> None:
    with pytest.raises(TaskError, match="variants and a seed"):
        variants(task("{{a}}", a=["x"]), n, seed)


def test_a_task_without_a_template_says_so() -> None:
    with pytest.raises(TaskError, match="template"):
        variants(msgspec.structs.replace(builtin_tasks()[0], variants=None), 1, 0)


@pytest.mark.parametrize(
    "template",
    [
        "{{ a.__class__ }}",
        "{{ a * 100000 }}",
        "{{ a() }}",
        "{% for i in range(99999) %}{{ a }}{% endfor %}",
        "{% set a = 1 %}{{ a }}",
        "{% include 'x' %}{{ a }}",
        "{{ a | upper }}",
        "{{ a",
        "{{ a }} {{ b }}",
        "plain",
        " ",
        "{{" + "(" * 5000 + "a",
        "{{ a }}" * 5000,
    ],
)
def test_a_template_with_more_than_words_in_places_is_refused(template: str) -> None:
    with pytest.raises(TaskError, match="expected"):
        check_variants(Variants(template, {"a": ["x"]}), PLACE)


@pytest.mark.parametrize("options", [[], ["x"] * 201, ["x" * 2001], ["a\0"]])
def test_choices_are_bounded(options: list[str]) -> None:
    with pytest.raises(TaskError, match="choices"):
        check_variants(Variants("{{ a }}", {"a": options}), PLACE)
