"""The threat: a folder from anybody whose turns, tools or schemas mean something else than they say, or never end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.errors import TaskError
from tasks.folder import load_task
from tasks.schemas import MAX_SCHEMA_NODES, check_schema
from tasks.types import conversation_of, turn_of

WEATHER = Path(__file__).parents[2] / "docs/examples/weather"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WEATHER, tmp_path / "weather"))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_conversation_is_a_prompt_a_turn() -> None:
    task = load_task(WEATHER)
    assert [(p.id, p.turn, p.after, p.role) for p in task.prompts[:4]] == [
        ("p1", 1, None, "user"),
        ("p1.2", 2, "p1", "tool"),
        ("p1.3", 3, "p1.2", "user"),
        ("p2", 1, None, "user"),
    ]
    assert task.turns == 3
    assert [[c.name for c in task.of_turn(n).cases] for n in (1, 2, 3)] == [
        ["calls", "city"],
        [],
        ["other_city", "other_unit"],
    ]
    assert len({task.of_turn(n).digest for n in (1, 2, 3)} | {task.digest}) == 4
    assert [task.gold_of(n) for n in (1, 2, 3)] == ["gold/leipzig.txt", "", "gold/halle.txt"]


def test_ids_tell_turns() -> None:
    assert [turn_of(p) for p in ("p1", "p1.2", "p1.12", "p1.x", "v1-001")] == [1, 2, 12, 1, 1]
    assert conversation_of("p1.3") == "p1"


def test_the_digest_covers_turns_and_tools(folder: Path) -> None:
    before = load_task(folder).digest
    change(folder / "prompts.toml", "in Fahrenheit?", "in Kelvin?")
    turned = load_task(folder).digest
    change(folder / "tools.json", "The weather in a city now.", "Weather.")
    assert len({before, turned, load_task(folder).digest}) == 3


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "turns_differ": (
        lambda f: change(f / "prompts.toml", '  { text = "And in Halle, in Fahrenheit?" },\n', ""),
        "as many turns as the others",
    ),
    "empty_turn": (
        lambda f: change(f / "prompts.toml", "And in Halle, in Fahrenheit?", " "),
        "turn 3 of prompt p1",
    ),
    "unknown_role": (lambda f: change(f / "prompts.toml", 'role = "tool"', 'role = "system"'), "system"),
    "case_of_no_turn": (lambda f: change(f / "cases.jsonl", '"turn": 1', '"turn": 4'), "turn from 1 to 3"),
    "case_of_turn_zero": (lambda f: change(f / "cases.jsonl", '"turn": 1', '"turn": 0'), "turn from 1 to 3"),
    "gold_for_one_turn": (
        lambda f: change(f / "task.toml", '["gold/leipzig.txt", "", "gold/halle.txt"]', '"gold/halle.txt"'),
        "3, one a turn",
    ),
    "gold_for_a_turn_without_cases": (
        lambda f: change(f / "task.toml", '"gold/leipzig.txt", ""', '"gold/leipzig.txt", "gold/halle.txt"'),
        "for turn 2",
    ),
    "mutant_of_two_turns": (
        lambda f: change(f / "task.toml", '["city"]', '["city", "other_city"]'),
        "cases of several",
    ),
    "no_tools": (
        lambda f: change(f / "task.toml", 'tools = "tools.json"\n', ""),
        "expected tools, a JSON file",
    ),
    "tools_not_there": (lambda f: (f / "tools.json").unlink(), "tools to name a file"),
    "tools_outside": (
        lambda f: change(f / "task.toml", '"tools.json"', '"../tools.json"'),
        "inside the task's folder",
    ),
    "tools_no_list": (lambda f: (f / "tools.json").write_text("{}"), "expected a list of"),
    "tools_twice": (
        lambda f: change(f / "tools.json", '"find_station"', '"get_weather"'),
        "with a name of its own",
    ),
    "tools_duplicate_key": (
        lambda f: change(f / "tools.json", '"type": "function",', '"type": "function", "type": "function",'),
        "twice",
    ),
    "parameters_no_object": (
        lambda f: change(f / "tools.json", '"type": "object"', '"type": "array"'),
        '"object"',
    ),
    "case_names_no_tool": (
        lambda f: change(f / "cases.jsonl", '"tool": "get_weather", "turn"', '"tool": "fly", "turn"'),
        "one of the task's tools",
    ),
    "case_schema_is_none": (
        lambda f: change(f / "cases.jsonl", '"const": "Halle"', '"$ref": "#"'),
        "expected keywords of",
    ),
    "variants": (
        lambda f: (
            (f / "prompts.toml").write_text(
                (f / "prompts.toml").read_text() + '\n[variants]\ntemplate = "{{a}}"\nchoices = {a = ["x"]}\n'
            )
            and None
        ),
        "expected no [variants] beside prompts with turns",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_is_refused(folder: Path, name: str) -> None:
    spoil, says = REFUSED[name]
    spoil(folder)
    with pytest.raises(TaskError) as refused:
        load_task(folder)
    assert says in str(refused.value)
    assert "expected" in str(refused.value)


def test_a_tool_that_says_something_must_be_described(folder: Path) -> None:
    change(folder / "task.toml", 'judge = "tool_call"\ntools = "tools.json"', 'judge = "constraints"')
    for line in ("calls", "city", "other_city", "other_unit"):
        text = (folder / "cases.jsonl").read_text().splitlines()
        kept = [
            json.dumps({"name": line, "constraint": "ends", "turn": c.get("turn", 3)})
            if (c := json.loads(row))["name"] == line
            else row
            for row in text
        ]
        (folder / "cases.jsonl").write_text("\n".join(kept))
    with pytest.raises(TaskError, match=r"expected tools in task\.toml beside a turn that a tool says"):
        load_task(folder)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"patternProperties": {"(a+)+$": {}}}}},
        {"type": "text"},
        {"minimum": "one"},
        {"properties": []},
        {"pattern": "("},
        {"pattern": "a" * 501},
        {"anyOf": [{"unevaluatedProperties": False}]},
        {"items": [{}]},
        [],
        {"properties": {f"k{i}": {} for i in range(MAX_SCHEMA_NODES)}},
    ],
)
def test_schemas_that_could_not_be_checked_are_refused(schema: object) -> None:
    with pytest.raises(TaskError, match="expected"):
        check_schema(schema, "here")


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, object] = {}
    for _ in range(2000):
        schema = {"not": schema}
    with pytest.raises(TaskError, match="nested at most 16"):
        check_schema(schema, "here")
