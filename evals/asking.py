"""From tasks to what is asked: each prompt as messages, with the filler before it that its depth asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from evals.engine.protocol import IMAGE_TAG
from evals.messages import Chat, Message
from evals.plan import Asked
from tasks.depth import base_and_depth
from tasks.filler import filler
from tasks.reading import read_bytes
from tasks.types import Prompt, Task


def chats(tasks: Sequence[Task], seed: int, count: Callable[[str], int]) -> tuple[Chat, ...]:
    """One chat a prompt, in the order of the tasks and of their prompts.

    count: tokens of a text. Each prompt of each depth has filler of its own, which `seed` decides.
    """
    return tuple(_chat(task, prompt, seed, count) for task, prompt in _each(tasks))


def asked(tasks: Sequence[Task], chats: Sequence[Chat], rendered: Sequence[str]) -> tuple[Asked, ...]:
    """The prompts of the tasks as a plan asks them; `chats` and their rendered texts in the same order."""
    return tuple(
        Asked(
            task=task.name,
            prompt=prompt.id,
            text=text,
            max_new_tokens=task.max_new_tokens,
            image=None if prompt.image is None else read_bytes(task.path, prompt.image),
            messages=chat.messages,
            tools=chat.tools,
            after=chat.after,
        )
        for (task, prompt), chat, text in zip(_each(tasks), chats, rendered, strict=True)
    )


def _each(tasks: Sequence[Task]) -> Iterator[tuple[Task, Prompt]]:
    return ((task, prompt) for task in tasks for prompt in task.prompts)


def _chat(task: Task, prompt: Prompt, seed: int, count: Callable[[str], int]) -> Chat:
    """The turn: filler, then the picture's place, then the prompt, as far as there are any."""
    text = prompt.text if prompt.image is None else IMAGE_TAG + prompt.text
    if task.depth is not None and prompt.after is None:
        base, _ = base_and_depth(task.name)
        text = filler(task.depth, f"{seed}/{base}/{prompt.id}", count) + text
    return Chat(messages=(Message(prompt.role, text),), tools=task.tools, after=prompt.after)
