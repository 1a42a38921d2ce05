"""The chat template: where it comes from, whether its copies agree, and what in it would spoil a measurement."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from evals.inspection.types import Problem

MAX_BYTES = 16 << 20
MAX_TEMPLATE = 1 << 18
FILE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"
_OLDER = "chat_template.json"
_CLOCK = re.compile(r"\b(strftime_now|now\(\)|today\(\))")
_PREFILLED = re.compile(r"""add_generation_prompt.{0,400}<think>""", re.DOTALL)


def look_at_template(root: Path, in_tokenizer: str | None) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """(places that hold a template, problems). in_tokenizer: the one in the tokenizer graph's runtime information.

    transformers, and so the gate, renders with the file or tokenizer_config.json; openvino-genai with the graph's.
    """
    problems: list[Problem] = []
    found = _templates(root, problems)
    rendered = next(iter(found.items()), None)
    if in_tokenizer is not None:
        found["openvino_tokenizer.xml"] = in_tokenizer
    if rendered is None:
        place = " (the tokenizer graph's own isn't read by transformers)" if in_tokenizer else ""
        message = f"no chat template in {FILE} or {_CONFIG}{place}: prompts can't be rendered. Copy the checkpoint's."
        problems.append(Problem("no-chat-template", "error", message))
        return tuple(found), tuple(problems)
    where, text = rendered
    differing = [name for name, other in found.items() if other.strip() != text.strip()]
    if differing:
        message = (
            f"{' and '.join(differing)} holds another chat template than {where}: a server that renders with it asks "
            f"another question than the gate, which renders with {where}. Make them one."
        )
        problems.append(Problem("chat-templates-differ", "warning", message, where))
    problems += _traps(where, text)
    return tuple(found), tuple(problems)


def _templates(root: Path, problems: list[Problem]) -> dict[str, str]:
    """File name → template, in the order in which transformers prefers them."""
    found: dict[str, str] = {}
    text = _read(root / FILE, problems)
    if text:
        found[FILE] = text.decode("utf-8", "replace")
    for name in (_OLDER, _CONFIG):
        raw = _read(root / name, problems)
        if raw is None:
            continue
        try:
            config: Any = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            message = f"expected JSON, found: {error}. Copy it from the export."
            problems.append(Problem("damaged-file", "error", message, name))
            continue
        template = config.get("chat_template") if isinstance(config, dict) else None
        if isinstance(template, list):
            named = [entry for entry in template if isinstance(entry, dict)]
            template = next((t.get("template") for t in named if t.get("name") == "default"), None)
        if isinstance(template, str) and template:
            found[name] = template
    return found


def _read(path: Path, problems: list[Problem]) -> bytes | None:
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > MAX_BYTES:
            message = f"expected at most {MAX_BYTES} bytes, found {path.stat().st_size}."
            problems.append(Problem("damaged-file", "error", message, path.name))
            return None
        return path.read_bytes()
    except OSError as error:
        problems.append(Problem("damaged-file", "error", f"cannot be read ({error}).", path.name))
        return None


def _traps(where: str, text: str) -> list[Problem]:
    problems = []
    if len(text) > MAX_TEMPLATE:
        message = f"a chat template of {len(text)} characters; expected at most {MAX_TEMPLATE}."
        return [Problem("chat-template-size", "error", message, where)]
    broken = _syntax(text)
    if broken:
        message = f"the chat template isn't valid jinja: {broken}. Copy the checkpoint's."
        problems.append(Problem("chat-template-broken", "error", message, where))
    if _CLOCK.search(text):
        message = "the chat template writes the date or time into the prompt: runs of two days ask different questions."
        problems.append(Problem("chat-template-clock", "warning", message, where))
    if "add_generation_prompt" not in text:
        message = "the chat template ignores add_generation_prompt: the model may continue the question, not answer it."
        problems.append(Problem("chat-template-no-turn", "warning", message, where))
    if "enable_thinking" in text:
        message = "the chat template has a thinking switch; the gate turns it off, a server may leave it on."
        problems.append(Problem("chat-template-thinking", "note", message, where))
    elif _PREFILLED.search(text):
        message = "the chat template opens a thinking block without a switch: an answer's program may lie inside it."
        problems.append(Problem("chat-template-thinking", "warning", message, where))
    return problems


def _syntax(text: str) -> str | None:
    """What jinja says against a template. Tags that transformers adds ({% generation %}) count as known."""
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    known = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", text)
    try:
        ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"]).parse(known)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {str(error.message)[:200]}"
    except (RecursionError, ValueError, OverflowError) as error:
        return type(error).__name__
    return None
