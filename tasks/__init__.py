"""What is asked: tasks, their prompts in several wordings, and named cases with what they expect.

A task is a folder (see `tasks.folder`); the built-in ones lie in `tasks/builtin`.
This package imports nothing of ours.
"""
