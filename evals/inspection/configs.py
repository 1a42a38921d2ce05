"""config.json and generation_config.json, held against the graphs and against how the gate decodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from evals.inspection.types import Problem
from evals.model_dir import MAX_CONFIG

GENERATION = "generation_config.json"
NEUTRAL: dict[str, float | None] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "guidance_scale": 1.0,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "ignore_eos": False,
    "stop_strings": None,
    "stop_token_ids": None,
}
"""Settings that change which token is picked or where an answer ends, with the value that changes nothing."""

SINGLE = ("num_beams", "num_beam_groups", "num_return_sequences")
"""Settings of which speculation takes only 1."""

SHORT = 64


class Declared(msgspec.Struct, frozen=True):
    """What config.json says; None where it says nothing usable. mtp_layers: of the head."""

    model_type: str | None = None
    mtp_layers: int | None = None
    hidden_size: int | None = None
    vocabulary: int | None = None
    tied: bool | None = None
    layers: int | None = None
    experts: int | None = None
    chosen: int | None = None
    eos: frozenset[int] = frozenset()


def read_declared(root: Path) -> Declared:
    """config.json's text part over its top level. A file that can't be read declares nothing (inspection says so)."""
    top, _ = _read(root / "config.json")
    nested = top.get("text_config")
    config = {**top, **nested} if isinstance(nested, dict) else top
    tied = top.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    kind = top.get("model_type")
    return Declared(
        model_type=kind if isinstance(kind, str) else None,
        mtp_layers=_count(config.get("mtp_num_hidden_layers")),
        hidden_size=_count(config.get("hidden_size")),
        vocabulary=_count(config.get("vocab_size")),
        tied=tied if isinstance(tied, bool) else None,
        layers=_count(config.get("num_hidden_layers")),
        experts=_count(config.get("num_experts")),
        chosen=_count(config.get("num_experts_per_tok")),
        eos=_ids(config.get("eos_token_id")),
    )


def declared_against_found(
    declared: Declared, hidden_size: int | None, vocabulary: int | None
) -> list[Problem]:
    """Warnings where config.json and the graphs differ: the graphs are what runs."""
    pairs = (
        ("hidden_size", declared.hidden_size, hidden_size),
        ("vocab_size", declared.vocabulary, vocabulary),
    )
    return [
        Problem(
            "config-mismatch",
            "warning",
            f"{name} is declared as {said}, the target's graph has {found}: the file may be another model's.",
            "config.json",
        )
        for name, said, found in pairs
        if None not in (said, found) and said != found
    ]


def look_at_generation(root: Path, declared: Declared, tokenizer_eos: int | None) -> list[Problem]:
    """Traps in generation_config.json: where a server that honours it would decode otherwise than the gate does."""
    config, broken = _read(root / GENERATION)
    if broken:
        return [Problem("damaged-file", "error", f"{broken}. Copy it from the export.", GENERATION)]
    if not (root / GENERATION).is_file():
        message = "absent: a server takes its own defaults, and the stop token from the tokenizer."
        return [Problem("no-generation-config", "note", message, GENERATION)]
    problems = []

    def say(code: str, message: str) -> None:
        problems.append(Problem(code, "warning", message, GENERATION))

    if config.get("do_sample") not in (None, False):
        say(
            "generation-samples",
            f"do_sample is {_show(config['do_sample'])}: a server that honours it samples, and a verdict on greedy "
            "decoding doesn't hold.",
        )
    for name, neutral in NEUTRAL.items():
        value = config.get(name)
        if value not in (None, neutral, [], {}):
            say(
                "generation-penalty",
                f"{name} is {_show(value)}: the gate decodes without it, a server that honours it gives other texts.",
            )
    for name in SINGLE:
        value = config.get(name)
        if value is not None and value != 1:
            say("generation-beams", f"{name} is {_show(value)}: speculation takes one sequence.")
    threshold = config.get("assistant_confidence_threshold")
    if threshold not in (None, 0):
        say(
            "generation-threshold",
            f"assistant_confidence_threshold is {_show(threshold)}: MTP takes only 0, K tokens a draft.",
        )
    for name in ("max_new_tokens", "max_length"):
        value = _count(config.get(name))
        if value is not None and value < SHORT:
            say("generation-short", f"{name} is {value}: a server that honours it cuts answers short.")
    problems += _stops(_ids(config.get("eos_token_id")), declared, tokenizer_eos)
    return problems


def _stops(stops: frozenset[int], declared: Declared, tokenizer_eos: int | None) -> list[Problem]:
    if not stops:
        message = "names no eos_token_id: an answer may run on to its budget."
        return [Problem("generation-no-stop", "warning", message, GENERATION)]
    if tokenizer_eos is not None and tokenizer_eos not in stops:
        message = (
            f"eos_token_id {sorted(stops)[:8]} lacks the tokenizer's {tokenizer_eos}: answers may not stop."
        )
        return [Problem("generation-stop", "warning", message, GENERATION)]
    if declared.eos and not declared.eos & stops:
        message = f"eos_token_id {sorted(stops)[:8]}, config.json has {sorted(declared.eos)[:8]}: one of them is stale."
        return [Problem("generation-stop", "warning", message, GENERATION)]
    return []


def _read(path: Path) -> tuple[dict[str, Any], str]:
    """(an object's entries, what is wrong with the file). ({}, "") for a file that isn't there."""
    try:
        if not path.is_file():
            return {}, ""
        if path.stat().st_size > MAX_CONFIG:
            return {}, f"expected at most {MAX_CONFIG} bytes, found {path.stat().st_size}"
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        return {}, f"cannot be read ({error})"
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return {}, f"expected a JSON object, found: {error}"
    if not isinstance(found, dict):
        return {}, f"expected a JSON object, found {type(found).__name__}"
    return found, ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None


def _ids(value: object) -> frozenset[int]:
    return frozenset(
        number
        for one in (value if isinstance(value, list) else [value])
        if (number := _count(one)) is not None
    )


def _show(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return msgspec.json.encode(value).decode()[:40]
