"""Chats rendered by a model's own chat template. Only children use this: transformers is heavy, templates are others'.

The template runs in transformers' sandboxed jinja; nothing is fetched.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
from collections.abc import Sequence
from typing import Any

import msgspec

from evals.messages import Chat, Message

MEMORY = 8 << 30
"""Bytes of data that a child which renders may take; its libraries need a tenth, a template can ask for any number."""

STAND_IN = "An answer."
"""Stands for answers that aren't there yet, to try whether a template takes a conversation."""


class RenderError(ValueError):
    """A tokenizer that can't be loaded or a template that fails: expected, found, what to do."""


class Renderer:
    """One model's template. Raises RenderError."""

    def __init__(self, model: str) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or hard > MEMORY:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, hard))
        os.environ["TRANSFORMERS_VERBOSITY"] = "error"
        os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
        with contextlib.redirect_stderr(io.StringIO()):
            from transformers import AutoTokenizer

        self._model = model
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                model, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # transformers raises whatever the files provoke
            raise RenderError(
                f"{model}: expected a tokenizer that transformers can load, found: {error}"
            ) from error
        if not self._tokenizer.chat_template:
            raise RenderError(
                f"{model}: expected a chat template (chat_template.jinja or in tokenizer_config.json), found none. "
                "Copy it from the checkpoint."
            )

    def render(self, chat: Chat) -> str:
        """The chat as one text, up to where the answer begins; thinking off where the template has that switch."""
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [msgspec.to_builtins(message) for message in chat.messages],
                    tools=list(chat.tools) or None,
                    tokenize=False,
                    add_generation_prompt=True,
                    enable_thinking=False,
                )
            )
        except Exception as error:  # the template is others' code
            raise RenderError(
                f"{self._model}: its chat template failed: {error}. Take the checkpoint's own."
            ) from error

    def render_all(self, chats: Sequence[Chat]) -> tuple[list[str], bool]:
        """Each chat's text; later turns of a conversation are tried with answers made up, and give "".

        Also whether the template leaves out the tools of a chat that has some.
        """
        texts: list[str] = []
        before: tuple[Message, ...] = ()
        blind = False
        for chat in chats:
            if chat.after is not None:
                chat = msgspec.structs.replace(
                    chat, messages=(*before, Message("assistant", STAND_IN), *chat.messages), after=None
                )
                self.render(chat)
                texts.append("")
            else:
                texts.append(self.render(chat))
            if chat.tools and not blind and len(chat.messages) == 1:
                blind = self.render(msgspec.structs.replace(chat, tools=())) == texts[-1]
            before = chat.messages
        return texts, blind
