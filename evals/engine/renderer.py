"""The child that renders later turns of conversations while others decode.

Run by `evals.conversation` as `python -P -m evals.engine.renderer READ_FD WRITE_FD`; first line Template, then a Chat a
line, each answered by Text or RenderProblem.
"""

from __future__ import annotations

import msgspec

from evals.engine.childside import connect
from evals.messages import Chat


class Template(msgspec.Struct, frozen=True, tag="template"):
    """First line: the model whose template renders."""

    model: str


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A chat, rendered."""

    text: str


class RenderProblem(msgspec.Struct, frozen=True, tag="problem"):
    """The template or its tokenizer failed."""

    message: str


FromRenderer = Text | RenderProblem


def main() -> None:
    """Serve until the parent goes away."""
    from evals.engine.rendering import Renderer, RenderError

    receive, send_line = connect()
    model = msgspec.json.decode(receive(), type=Template).model
    renderer: Renderer | None = None
    while True:
        chat = msgspec.json.decode(receive(), type=Chat)
        reply: FromRenderer
        try:
            renderer = renderer or Renderer(model)
            reply = Text(renderer.render(chat))
        except RenderError as error:
            reply = RenderProblem(str(error))
        send_line(msgspec.json.encode(reply))


if __name__ == "__main__":
    main()
