"""The published JSON schema of verdict.json, generated from the types so that the two can't part.

`python -m gate.schema` writes the file again; a test fails while it isn't current.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import msgspec

from gate.types import Verdict

FILE = "verdict.schema.json"


def verdict_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of verdict.json, made from `gate.types.Verdict`."""
    (schema,), components = msgspec.json.schema_components([Verdict], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mtp-gate verdict, schema 1",
        "description": "What `gate check` decided and why. A field that is null was not measured or can't be known.",
        **schema,
        "$defs": components,
    }


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(verdict_schema(), indent=2, ensure_ascii=False) + "\n"


def published_schema() -> dict[str, Any]:
    """The schema as the installed package publishes it."""
    loaded: dict[str, Any] = json.loads(resources.files("gate.schema").joinpath(FILE).read_text("utf-8"))
    return loaded
