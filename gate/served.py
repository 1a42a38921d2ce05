"""What a deploy is about to serve, as its author writes it down: `gate verify --served FILE` holds a statement to it.

A TOML or JSON file with any of these keys; what isn't given isn't compared, and the answer says so:

    k = 1                            # drafted tokens per verify step
    device = "GPU.0"
    engine = "genai"
    method = "mtp"
    head = "int4"                    # the head's name, where several were compared
    kv_cache_precision = "f16"       # OpenVINO's KV_CACHE_PRECISION
    inference_precision = "f16"      # OpenVINO's INFERENCE_PRECISION_HINT
    depth = 16384                    # the longest context served, tokens
    concurrency = 4                  # requests in flight
    policy = "<SHA-256>"             # the policy that the deploy demands
    [properties]                     # further OpenVINO properties: each must be the statement's
    [scheduler]
    [versions]                       # runtime packages, e.g. openvino = "2026.4.1"
    [tasks]                          # task = "<SHA-256>": tasks that must have been part of the run
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

MAX_BYTES = 1 << 20
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=1)]


class ServedError(ValueError):
    """A description of what is served that can't be read: expected, found, where, what to do."""


class Served(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the deploy will use; None and empty: not said, so not compared. depth in tokens."""

    k: Count | None = None
    device: str | None = None
    engine: str | None = None
    method: Literal["mtp", "draft", "eagle3", "dflash", "prompt_lookup"] | None = None
    head: str | None = None
    kv_cache_precision: str | None = None
    inference_precision: str | None = None
    depth: Count | None = None
    concurrency: Count | None = None
    policy: Sha256 | None = None
    properties: dict[str, str] = {}
    scheduler: dict[str, int | bool] = {}
    versions: dict[str, str] = {}
    tasks: dict[str, Sha256] = {}

    def openvino_properties(self) -> dict[str, str]:
        """`properties` and the two that have a key of their own. Raises ServedError where they contradict."""
        named = {
            "KV_CACHE_PRECISION": self.kv_cache_precision,
            "INFERENCE_PRECISION_HINT": self.inference_precision,
        }
        merged = dict(self.properties)
        for key, value in named.items():
            if value is None:
                continue
            if merged.get(key, value) != value:
                raise ServedError(f"{key} is given twice, as {value!r} and as {merged[key]!r}: give it once")
            merged[key] = value
        return merged


def load_served(path: Path) -> Served:
    """Read a file of what the deploy will use: TOML, or JSON where its name ends in .json. Raises ServedError."""
    try:
        with path.open("rb") as f:
            raw = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise ServedError(
            f"expected a TOML or JSON file of what is served, found none at {path}: {e.strerror}"
        ) from e
    if len(raw) > MAX_BYTES:
        raise ServedError(f"{path}: expected at most {MAX_BYTES} bytes, found more")
    decode = msgspec.json.decode if path.suffix == ".json" else msgspec.toml.decode
    try:
        served = decode(raw, type=Served)
        served.openvino_properties()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ServedError) as e:
        raise ServedError(f"{path}: {e}. Keys: {', '.join(Served.__struct_fields__)}") from e
    return served


def merge(file: Served, options: Served) -> Served:
    """The file's description with the command line's options laid over it. Raises ServedError where they clash."""
    changes: dict[str, Any] = {}
    for name in Served.__struct_fields__:
        of_file, of_options = getattr(file, name), getattr(options, name)
        if isinstance(of_options, dict):
            changes[name] = {**of_file, **of_options}
        elif of_options is not None:
            changes[name] = of_options
    merged = msgspec.structs.replace(file, **changes)
    merged.openvino_properties()
    return merged
