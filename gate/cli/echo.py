"""Prints what others may have written (names in a run, a statement, a path) without letting it steer a terminal."""

from __future__ import annotations

import click


def echo(text: str, *, err: bool = False) -> None:
    """Print `text`, with a visible sign for each control, format and bidi character but newline and tab."""
    from reports.visible import visible

    click.echo(visible(text), err=err)
