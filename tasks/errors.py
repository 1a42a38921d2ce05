"""The one exception of this package, in a file of its own so that every other file can raise it."""

from __future__ import annotations


class TaskError(ValueError):
    """A task's folder isn't as it must be; says what was expected, what was found, where, and what to do."""
