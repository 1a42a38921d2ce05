"""Parameter types and options that more than one command takes, declared once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType[float]):
    """`90`, `90s`, `10m`, `1.5h` or `30d` → seconds; must be above zero."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value).strip())
        if found is None or float(found[1]) == 0:
            self.fail(f"expected a duration such as 90s, 10m or 1h, found {value!r}", param, ctx)
        return float(found[1]) * _UNITS[found[2] or "s"]


DURATION = Duration()
DIRECTORY = click.Path(path_type=Path)

FORMATS = ("fp16", "fp32", "int8", "int4")
"""Weight formats of a head that is built or exported, by optimum-intel's names."""

LAYOUTS: dict[str, Literal["genai", "split"]] = {"exported": "genai", "split": "split"}
"""Head layouts by the names that users give them."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def task_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--tasks DIR` and `--task NAME`."""
    for option in (
        click.option(
            "--task",
            "task_names",
            multiple=True,
            metavar="NAME",
            help="Only this task (repeatable; default: all).",
        ),
        click.option(
            "--tasks",
            "task_dirs",
            multiple=True,
            type=DIRECTORY,
            metavar="DIR",
            help="A task folder of yours, or a folder of them (repeatable); the built-in tasks stay.",
        ),
    ):
        command = option(command)
    return command


policy_option: Decorator = click.option(
    "--policy",
    type=DIRECTORY,
    metavar="FILE",
    help="A gate.toml, laid over the default policy (see `gate policy`).",
)


def layout_option(*names: str) -> Decorator:
    """`--layout`; the command gets a `HeadLayout` or None."""
    return click.option(
        "--layout",
        *names,
        "layout",
        type=click.Choice(sorted(LAYOUTS)),
        callback=lambda ctx, param, value: None if value is None else LAYOUTS[value],
        help="Which head of a directory that has two: openvino_mtp_model, or openvino_mtp_layer with its lm_head.",
    )


quiet_option: Decorator = click.option("--quiet", "-q", is_flag=True, help="No progress, only the verdict.")


def _known_sandbox(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    from sandbox.choose import BACKENDS

    if name is not None and name not in BACKENDS:
        raise click.BadParameter(f"expected one of {', '.join(BACKENDS)}, found {name!r}", ctx, param)
    return name


sandbox_option: Decorator = click.option(
    "--sandbox",
    "sandbox_name",
    metavar="NAME",
    callback=_known_sandbox,
    help="Sandbox backend (default: the first that passes its self-test).",
)


def shared_outputs(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a concluded run is shown: `--redact`, `--github`, `--sign-with`."""
    for option in (
        click.option(
            "--sign-with",
            type=DIRECTORY,
            metavar="FILE",
            help="Private key (PEM) to sign the attestation with; passphrase from GATE_KEY_PASSPHRASE.",
        ),
        click.option("--github", is_flag=True, help="Also print GitHub annotations."),
        click.option(
            "--redact", is_flag=True, help="Leave prompts and answers out of what is written to be shared."
        ),
    ):
        command = option(command)
    return command
