"""What passes between the gate and an engine's process: JSON lines on two pipes of their own.

Native libraries print on stdout and stderr, so neither carries messages.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from evals.model_dir import HeadLayout
from evals.types import Method

MAX_LINE = 64 << 20
"""Longest line either side accepts, in bytes: an answer of a million tokens takes about 20 MB."""


IMAGE_TAG = "<ov_genai_image_0>"
"""Where a rendered prompt has its picture: openvino-genai puts the model's own vision tokens there."""


class Build(msgspec.Struct, frozen=True, tag="build", forbid_unknown_fields=True):
    """First line to the worker: the arm to build. head: directory to take the draft from, None where none is.

    max_ngram: tokens that prompt lookup matches at most; None for other methods. layout: which head is meant where the
    model's directory has two.
    """

    model: str
    head: str | None
    method: Method
    k: int
    device: str
    properties: dict[str, str]
    scheduler: dict[str, int | bool]
    stop_ids: tuple[int, ...]
    max_ngram: int | None = None
    layout: HeadLayout | None = None


class Ask(msgspec.Struct, frozen=True, tag="ask", forbid_unknown_fields=True):
    """One rendered prompt to decode greedily. image: a PNG or JPEG file's bytes, shown at `IMAGE_TAG`."""

    text: str
    max_new_tokens: int
    image: bytes | None = None


class AskAll(msgspec.Struct, frozen=True, tag="ask_all", forbid_unknown_fields=True):
    """Prompts to decode at once, all in flight together. One Done or Problem each comes back, in this order."""

    asks: tuple[Ask, ...]


class Ready(msgspec.Struct, frozen=True, tag="ready", forbid_unknown_fields=True):
    """The pipeline is built."""


class Beat(msgspec.Struct, frozen=True, tag="beat", forbid_unknown_fields=True):
    """Still decoding; `tokens` delivered so far. At most two a second."""

    tokens: int


class Done(msgspec.Struct, frozen=True, tag="done", forbid_unknown_fields=True):
    """An answer. Fields mean what they mean in `evals.types.Answer`; times in seconds."""

    ids: tuple[int, ...]
    steps: tuple[int, ...]
    text: str
    streamed: str
    prompt_tokens: int
    reported_tokens: int
    accepted: int | None
    drafted: int | None
    ttft_s: float | None
    decode_s: float | None


class Problem(msgspec.Struct, frozen=True, tag="problem", forbid_unknown_fields=True):
    """The engine raised (error) or ran out of room for the request (refused); the worker lives on after a request."""

    kind: Literal["error", "refused"]
    message: str


ToWorker = Build | Ask | AskAll
FromWorker = Ready | Beat | Done | Problem
