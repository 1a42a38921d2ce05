"""Prints what others may have written (names in a run, a statement, a path) without letting it steer a terminal."""

from __future__ import annotations

import click


def echo(text: str, *, err: bool = False) -> None:
    """Print `text` as one line, with a visible sign for each control, format and bidi character but the tab.

    One line, since a CI takes a line that begins with `::` for a command.
    """
    from reports.visible import visible

    click.echo(visible(text).replace("\n", "\u21b5"), err=err)
