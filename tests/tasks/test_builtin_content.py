"""Threat: a built-in task grades a right answer as wrong, or lets the wrong answer through that it was made for.

The folders are read here with tomllib and json alone, so a fault in the loader can't hide one in the content,
and programs run in a fresh interpreter under four time zones. `gate tasks check` asks the same of the real
grader.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jinja2
import pytest

from sandbox.contract import ENVIRONMENT

BUILTIN = Path(__file__).parents[2] / "tasks" / "builtin"
ZONES = ("UTC", "<+0545>-5:45", "<-0330>3:30", "<+14>-14")
RUNNER = """
import json, runpy, sys
path, entry = sys.argv[1:]
function = runpy.run_path(path)[entry]
for line in sys.stdin:
    case = json.loads(line)
    try:
        result = function(*case["args"])
    except Exception as error:
        ok = type(error).__name__ == case.get("raises")
    else:
        ok = "raises" not in case and result == case["returns"] and type(result) is type(case["returns"])
    print(json.dumps([case["name"], ok]))
"""


def read(name: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    folder = BUILTIN / name
    cases = [json.loads(line) for line in (folder / "cases.jsonl").read_text().splitlines()]
    return (
        tomllib.loads((folder / "task.toml").read_text()),
        cases,
        tomllib.loads((folder / "prompts.toml").read_text()),
    )


def failed_cases(name: str, file: str, zone: str = ENVIRONMENT["TZ"]) -> set[str]:
    task, cases, _ = read(name)
    path = BUILTIN / name / file
    if task["judge"] == "function":
        done = subprocess.run(
            [sys.executable, "-I", "-c", RUNNER, str(path), task["entry"]],
            input="\n".join(json.dumps(case) for case in cases),
            env={"PATH": os.environ["PATH"], "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return {case for case, ok in map(json.loads, done.stdout.splitlines()) if not ok}
    return {case["name"] for case in cases if not holds(case, path.read_text())}


def holds(case: dict[str, Any], text: str) -> bool:
    words = text.split()
    match case["constraint"]:
        case "words":
            return bool(case["min"] <= len(words) <= case["max"])
        case "recurs":
            names = [m[0] for m in re.finditer(r"(?<=[a-z,] )[A-Z][a-z]+", text)]
            return any(len(re.findall(rf"\b{name}\b", text)) >= case["min"] for name in names)
        case "no_loop":
            grams = [tuple(words[i : i + case["n"]]) for i in range(len(words) - case["n"] + 1)]
            return all(grams.count(gram) <= case["max_repeats"] for gram in set(grams))
        case "ends":
            return text.rstrip().endswith((".", "!", "?", '"'))
        case "counts":
            return re.split(r"[,\s]+", text.strip()) == [
                str(n) for n in range(case["start"], case["stop"] + 1)
            ]
    raise AssertionError(case)


TASKS = sorted(path.name for path in BUILTIN.iterdir() if (path / "task.toml").is_file())
MUTANTS = [(name, m["file"], m["fails"]) for name in TASKS for m in read(name)[0]["mutant"]]


def test_the_four_tasks_are_there() -> None:
    assert TASKS == ["count", "csv", "iso8601", "prose"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("zone", ZONES)
def test_the_gold_solution_passes_every_case_in_every_time_zone(name: str, zone: str) -> None:
    assert failed_cases(name, read(name)[0]["gold"], zone) == set()


@pytest.mark.parametrize(("name", "file", "fails"), MUTANTS)
def test_a_mutant_fails_the_case_it_was_made_for(name: str, file: str, fails: list[str]) -> None:
    assert set(fails) <= failed_cases(name, file)


def test_a_program_that_depends_on_the_zone_of_its_process_shows_in_the_sandboxs_zone_only() -> None:
    mutant = "mutants/zone_of_the_process.py"
    assert failed_cases("iso8601", mutant, "UTC") == set()
    assert "offset_crosses_day" in failed_cases("iso8601", mutant)


@pytest.mark.parametrize("name", TASKS)
def test_every_mutant_on_disk_is_named_and_every_case_of_code_has_one(name: str) -> None:
    task, cases, _ = read(name)
    on_disk = {f"mutants/{path.name}" for path in (BUILTIN / name / "mutants").iterdir()}
    assert on_disk == {mutant["file"] for mutant in task["mutant"]}
    assert len(on_disk) >= 3
    assert {case for mutant in task["mutant"] for case in mutant["fails"]} == {case["name"] for case in cases}


def test_the_number_of_named_cases_is_what_the_task_text_promises() -> None:
    assert len({case["name"] for case in read("csv")[1]}) == 10
    iso = read("iso8601")[1]
    assert len({case["name"] for case in iso}) == 8
    assert sum("raises" in case for case in iso) == 3


@pytest.mark.parametrize("name", TASKS)
def test_four_wordings_and_variants_that_render_to_hundreds_of_different_ones(name: str) -> None:
    task, _, prompts = read(name)
    assert [prompt["id"] for prompt in prompts["prompt"]] == ["p1", "p2", "p3", "p4"]
    assert len({prompt["text"] for prompt in prompts["prompt"]}) == 4
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    template = environment.from_string(prompts["variants"]["template"])
    choices = prompts["variants"]["choices"]
    rendered = {
        template.render(dict(zip(choices, picked, strict=True)))
        for picked in itertools.islice(itertools.product(*choices.values()), 3000)
    }
    assert len(rendered) >= 300
    wanted = task.get("entry", "40")
    assert all(wanted in text and "  " not in text for text in rendered)


def test_the_iso_task_names_the_edition_that_allows_hour_24() -> None:
    _, _, prompts = read("iso8601")
    assert all("8601:2004" in prompt["text"] and "24:00:00" in prompt["text"] for prompt in prompts["prompt"])
