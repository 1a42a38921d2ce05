"""The published JSON schemas of verdict.json and of `gate inspect --json`, made from the types so that none can part.

`python -m gate.schema` writes the files again; a test fails while one isn't current.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import msgspec

from evals.inspection.types import Inspection
from gate.types import Verdict

FILE = "verdict.schema.json"

_PUBLISHED: dict[str, tuple[type[msgspec.Struct], str, str]] = {
    FILE: (
        Verdict,
        "mtp-gate verdict, schema 1",
        "What `gate check` decided and why. A field that is null was not measured or can't be known.",
    ),
    "inspection.schema.json": (
        Inspection,
        "mtp-gate inspection, schema 1",
        "What `gate inspect --json` found in a model directory. A field that is null can't be known from its files.",
    ),
}
"""File → what it describes: the type, a title and a description."""

FILES = tuple(_PUBLISHED)


def make_schema(file: str) -> dict[str, Any]:
    """JSON schema (2020-12) that belongs into one of FILES."""
    kind, title, description = _PUBLISHED[file]
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
        **schema,
        "$defs": components,
    }


def schema_text(file: str = FILE) -> str:
    """The schema as its file holds it."""
    return json.dumps(make_schema(file), indent=2, ensure_ascii=False) + "\n"


def published_schema(file: str = FILE) -> dict[str, Any]:
    """The schema as the installed package publishes it."""
    loaded: dict[str, Any] = json.loads(resources.files("gate.schema").joinpath(file).read_text("utf-8"))
    return loaded
