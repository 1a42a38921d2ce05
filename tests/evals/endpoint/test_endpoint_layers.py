"""The threat: a difference between a directory and its server that is put down to the wrong part, or to none."""

from __future__ import annotations

import msgspec
import pytest

from evals.endpoint.layers import Layer, layer_of
from evals.types import Answer, Failure

OWN = Answer(
    arm="mtp@1",
    task="t",
    prompt="p",
    repeat=0,
    prompt_sha256="",
    prompt_tokens=40,
    max_new_tokens=9,
    text="one two  three",
)
SERVED = msgspec.structs.replace(OWN, arm="served@1", text="one two  three")


def served(text: str, **fields: object) -> Answer:
    return msgspec.structs.replace(SERVED, text=text, **fields)


@pytest.mark.parametrize(
    ("answer", "whole", "raw", "layer"),
    [
        (SERVED, None, None, None),
        (served("one three"), SERVED, None, "stream assembly"),
        (served("four", prompt_tokens=41), served("four"), None, "template"),
        (served("four"), served("four"), SERVED, "template"),
        (served("one two  three<|im_end|>"), None, None, "stop handling"),
        (served("one two"), None, None, "stop handling"),
        (served("one two three"), None, None, "detokenizer"),
        (served("one two  three\n"), served("one two  three\n"), SERVED, "detokenizer"),
        (served("\ufffdone two  three"), None, None, "detokenizer"),
        (served("four five"), served("four five"), served("four five"), "decoding"),
        (served("four", prompt_tokens=0), None, served("", failure=Failure("refused", "no")), "decoding"),
    ],
)
def test_each_layer_is_named(
    answer: Answer, whole: Answer | None, raw: Answer | None, layer: Layer | None
) -> None:
    assert layer_of(OWN, answer, whole, raw) == layer
