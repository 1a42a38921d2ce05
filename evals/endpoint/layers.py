"""A head served and the same head in-process give other bytes: which layer between them is it?

Told apart by what is seen: tokens of the prompt, the same question without a stream, and the rendered prompt asked past
the server's template. What none of these explains is decoding itself (kernels, precisions, K, the head).
"""

from __future__ import annotations

import unicodedata
from typing import Literal

from evals.types import Answer

Layer = Literal["template", "stream assembly", "stop handling", "detokenizer", "decoding"]


def layer_of(own: Answer, served: Answer, whole: Answer | None, raw: Answer | None) -> Layer | None:
    """The layer in which a served answer differs from the directory's own; None where the texts are equal.

    whole: the served answer to the same question without a stream. raw: the one to the rendered prompt. None where it
    wasn't asked or failed, and then that layer can't be told from the ones that follow it here.
    """
    if own.text == served.text:
        return None
    if whole is not None and not whole.failure and whole.text == own.text:
        return "stream assembly"
    if served.prompt_tokens and own.prompt_tokens and served.prompt_tokens != own.prompt_tokens:
        return "template"
    if _plain_text(own.text) == _plain_text(served.text):
        return "detokenizer"
    if raw is not None and not raw.failure and raw.text == own.text:
        return "template"
    if own.text.startswith(served.text) or served.text.startswith(own.text):
        return "stop handling"
    return "decoding"


def _plain_text(text: str) -> str:
    """A text without what detokenizers treat differently: spaces at the ends and in rows, broken characters, forms."""
    return " ".join(unicodedata.normalize("NFKC", text.replace("\ufffd", "")).split())
