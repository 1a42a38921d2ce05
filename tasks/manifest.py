"""Reads task.toml and prompts.toml: what a task is, and its wordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from tasks.conversation import WrittenPrompt, as_turns
from tasks.errors import TaskError
from tasks.images import check_image
from tasks.reading import inside, shown
from tasks.toml import read_toml
from tasks.types import RUNS_PROGRAMS, Judge, Kind, Language, Mutant, Prompt, Variants
from tasks.variants import VARIANT_ID, check_variants

MAX_TASK_TOML: Final = 64 << 10
MAX_PROMPTS_TOML: Final = 8 << 20
MAX_PROMPTS: Final = 1_000
MAX_PROMPT_CHARACTERS: Final = 1_000_000
MAX_LINE_CHARACTERS: Final = 400
"""Of a title or a summary, which stand in tables and reports."""
MAX_NEW_TOKENS: Final = 131_072
MAX_MUTANTS: Final = 200
CPU_S: Final = 1.0
"""A case's seconds of CPU time where the task doesn't say: a thousand times what an honest small function takes."""
MAX_CPU_S: Final = 60.0

NAME: Final = re.compile(r"[a-z0-9_-]{1,64}")
"""Names of tasks, prompts and cases: they become file names, table cells and anchors."""
IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """task.toml as it is written."""

    schema: int
    name: str
    title: str
    summary: str
    kind: Kind
    judge: Judge
    max_new_tokens: int
    gold: str | list[str]
    language: Language | None = None
    entry: str | None = None
    cpu_s: float | None = None
    checks: str | None = None
    tools: str | None = None
    mutant: list[Mutant] = []

    @property
    def golds(self) -> tuple[str, ...]:
        """The gold answers' files: one, or one a turn of a conversation ("" for a turn without cases)."""
        return (self.gold,) if isinstance(self.gold, str) else tuple(self.gold)


class Prompts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """prompts.toml as it is written."""

    prompt: list[WrittenPrompt]
    variants: Variants | None = None


def read_manifest(folder: Path) -> Manifest:
    """task.toml, checked. Raises TaskError."""
    place = folder / "task.toml"
    made = read_toml(folder, "task.toml", Manifest, MAX_TASK_TOML)
    if made.schema != 1:
        raise TaskError(f"{place}: expected schema = 1, found {made.schema}; this version reads no other")
    if not NAME.fullmatch(made.name):
        raise TaskError(
            f"{place}: expected name in a-z, 0-9, _ and -, 64 at most, found {shown(made.name)}; rename it"
        )
    for key, text in (("title", made.title), ("summary", made.summary)):
        if not text.strip() or len(text) > MAX_LINE_CHARACTERS or not text.isprintable():
            raise TaskError(
                f"{place}: expected {key} to be one line of 1 to {MAX_LINE_CHARACTERS} characters, "
                f"found {shown(text)}; shorten or fill it"
            )
    if not 1 <= made.max_new_tokens <= MAX_NEW_TOKENS:
        raise TaskError(
            f"{place}: expected max_new_tokens from 1 to {MAX_NEW_TOKENS:,}, found {made.max_new_tokens}; correct it"
        )
    if len(made.mutant) > MAX_MUTANTS:
        raise TaskError(
            f"{place}: expected at most {MAX_MUTANTS} mutants, found {len(made.mutant)}; remove some"
        )
    _fits_judge(made, place)
    return made


def _fits_judge(made: Manifest, place: Path) -> None:
    judge = f'judge = "{made.judge}"'
    runs = made.judge in RUNS_PROGRAMS
    if made.cpu_s is not None and not (runs and 0.1 <= made.cpu_s <= MAX_CPU_S):
        expected = f"cpu_s from 0.1 to {MAX_CPU_S:.0f} seconds" if runs else f"no cpu_s beside {judge}"
        raise TaskError(f"{place}: expected {expected}, found {made.cpu_s}; correct or remove it")
    if runs and made.language is None:
        raise TaskError(
            f'{place}: expected language beside {judge}, found none; add e.g. language = "python"'
        )
    if not runs and made.language is not None:
        raise TaskError(f"{place}: expected no language beside {judge}, which runs no program; remove it")
    if (made.checks is not None) != (made.judge == "checks"):
        expected = "checks, a Python file of the folder," if made.judge == "checks" else "no checks"
        found = "none" if made.checks is None else shown(made.checks)
        raise TaskError(f"{place}: expected {expected} beside {judge}, found {found}; correct it")
    if made.judge == "tool_call" and (made.tools is None or made.kind != "exact"):
        raise TaskError(
            f'{place}: expected tools, a JSON file of the folder, and kind = "exact" beside {judge}, '
            f'found {"none" if made.tools is None else shown(made.tools)} and "{made.kind}"; correct it'
        )
    if made.judge in ("function", "checks"):
        if made.entry is None or not IDENTIFIER.fullmatch(made.entry):
            found = "none" if made.entry is None else shown(made.entry)
            raise TaskError(f"{place}: expected entry, the name of the function, found {found}; name it")
    elif made.entry is not None:
        raise TaskError(f"{place}: expected no entry beside {judge}, which calls no function; remove it")
    if (made.kind == "code") != runs:
        expected = '"code"' if runs else '"prose" or "exact"'
        raise TaskError(
            f'{place}: expected kind = {expected} beside {judge}, found "{made.kind}"; correct one of them'
        )


def read_prompts(folder: Path, files: tuple[str, ...]) -> tuple[tuple[Prompt, ...], Variants | None]:
    """prompts.toml, checked. `files` are those of the folder. Raises TaskError."""
    place = folder / "prompts.toml"
    made = read_toml(folder, "prompts.toml", Prompts, MAX_PROMPTS_TOML)
    if not 1 <= len(made.prompt) <= MAX_PROMPTS:
        raise TaskError(
            f"{place}: expected 1 to {MAX_PROMPTS:,} prompts, found {len(made.prompt)}; write them"
        )
    ids: set[str] = set()
    texts: dict[str, str] = {}
    for prompt in made.prompt:
        if not NAME.fullmatch(prompt.id) or VARIANT_ID.fullmatch(prompt.id):
            raise TaskError(
                f"{place}: expected a prompt's id in a-z, 0-9, _ and -, and not like v1-001 (a variant's), "
                f"found {shown(prompt.id)}; rename it"
            )
        if prompt.id in ids:
            raise TaskError(
                f"{place}: expected every prompt to have its own id, found {prompt.id} twice; rename one"
            )
        ids.add(prompt.id)
        if not prompt.text.strip() or len(prompt.text) > MAX_PROMPT_CHARACTERS or "\0" in prompt.text:
            raise TaskError(
                f"{place}: expected the text of prompt {prompt.id} to have 1 to {MAX_PROMPT_CHARACTERS:,} characters "
                f"and no NUL, found {len(prompt.text):,}: {shown(prompt.text)}; rewrite it"
            )
        said = (prompt.text, *(turn.text for turn in prompt.turns))
        key = "\0".join([*(" ".join(text.split()) for text in said), str(prompt.image)])
        if key in texts:
            raise TaskError(
                f"{place}: expected wordings that differ, found prompts {texts[key]} and {prompt.id} alike; rewrite one"
            )
        texts[key] = prompt.id
        if prompt.image is not None and inside(folder, prompt.image) not in files:
            raise TaskError(
                f"{place}: expected the image of prompt {prompt.id} to be a file of the folder, "
                f"found {shown(prompt.image)}; add that file"
            )
        if prompt.image is not None and prompt.turns:
            raise TaskError(
                f"{place}: expected no image in a prompt with turns, found both in {prompt.id}; a conversation about a "
                "picture can't be decoded yet, remove one"
            )
        if prompt.image is not None:
            check_image(folder, prompt.image, f"{place}, prompt {prompt.id}")
    if made.variants is not None:
        check_variants(made.variants, place)
        if made.variants.image not in (None, *(prompt.image for prompt in made.prompt)):
            raise TaskError(
                f"{place}: expected the image of [variants] to be one that a prompt shows too, "
                f"found {shown(str(made.variants.image))}; name that one"
            )
    turns = as_turns(made.prompt, place, MAX_PROMPT_CHARACTERS)
    if made.variants is not None and len(turns) > len(made.prompt):
        raise TaskError(
            f"{place}: expected no [variants] beside prompts with turns, whose later turns a template can't reword, "
            "found both; remove one"
        )
    return turns, made.variants
