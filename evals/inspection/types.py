"""What an inspection found: parts, facts and problems, as frozen data that goes out as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from evals.inspection.graph import Port
from evals.inspection.weights import Scheme

Severity = Literal["error", "warning", "note"]
Layout = Literal["none", "exported", "split", "half", "both"]
Role = Literal["target", "head", "lm_head", "embeddings", "other"]


class Problem(msgspec.Struct, frozen=True):
    """Something to know of a directory. error: it can't be gated. warning: look before you serve. note: good to know.

    code: kebab-case, stable. where: a file's name, or "" for the directory.
    """

    code: str
    severity: Severity
    message: str
    where: str = ""


class Experts(msgspec.Struct, frozen=True):
    """A part's mixture of experts. read: whether the device computes all experts or those chosen, by the runtime model;
    "unknown" without a device, since the exported graph looks the same. Bytes: of the experts' weights, a token."""

    count: int
    chosen: int | None
    bytes_all: int
    bytes_chosen: int | None
    read: Literal["all", "chosen", "unknown"] = "unknown"


class Part(msgspec.Struct, frozen=True):
    """One graph. states: name → shape. schemes: its weights' quantisation, read off the graph. declared: what its
    runtime information says of it. versions: of what it was made with."""

    name: str
    role: Role
    bytes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[Port, ...]
    parameters: int
    schemes: tuple[Scheme, ...]
    declared: dict[str, str]
    versions: dict[str, str]
    experts: Experts | None = None


class DraftCost(msgspec.Struct, frozen=True):
    """Bytes that one draft reads: the head's layer with all its experts, the lm_head it shares, one row of embeddings.
    least: the same if only the chosen experts are read (equal to `most` without experts)."""

    layer: int
    lm_head: int
    embedding_row: int
    most: int
    least: int


class Norms(msgspec.Struct, frozen=True):
    """Medians of the norm weights as applied, and the share of negative ones, by part. Widths: in both parts."""

    widths: tuple[int, ...]
    head: float
    backbone: float
    head_negative: float
    backbone_negative: float


class Inspection(msgspec.Struct, frozen=True):
    """A model directory, looked at. servable: nothing found here speaks against gating it; only decoding tells more.

    schema: 1 as long as no field is renamed, removed or changes its meaning; fields may be added.
    hidden_size, vocabulary: of the target, by its graphs; None where they don't say. tokens: ids the tokenizer can
    give. tied: whether embeddings and lm_head are the same weights, declared by config and found in the files.
    decoder_layers: entries of hidden_states_decoder_layers. digests: "whole", "target", "head" → SHA-256.
    """

    schema: Literal[1]
    path: str
    servable: bool
    layout: Layout
    target: str | None
    model_type: str | None
    size: int
    layers_declared: int | None
    hidden_size: int | None
    vocabulary: int | None
    tokens: int | None
    tied_declared: bool | None
    tied_found: bool | None
    decoder_layers: int | None
    parts: tuple[Part, ...]
    draft: DraftCost | None
    norms: Norms | None
    chat_template: tuple[str, ...]
    installed: dict[str, str]
    device: str | None
    digests: dict[str, str]
    problems: tuple[Problem, ...]
