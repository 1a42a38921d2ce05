"""The options of `gate check` that name servers, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gate.cli.options import DIRECTORY

if TYPE_CHECKING:
    from gate.planning import Serving

OF_SERVERS = (
    "plain_url",
    "served_model",
    "tokenizer",
    "switch_cmd",
    "api",
    "stream",
    "request_fields",
    "spec_metrics",
    "spec_log",
    "spec_log_pattern",
)
OF_DIRECTORIES = (
    "device",
    "properties",
    "scheduler",
    "heads",
    "draft",
    "draft_leak",
    "max_ngram",
    "prompt_lookup",
    "cache",
    "remedies",
    "control",
    "sign_with",
)


def endpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--plain-url`, `--spec-url` and all that goes with them."""
    for option in (
        click.option(
            "--spec-log-pattern",
            metavar="REGEX",
            help="How that log tells it, with the groups (?P<accepted>…) and (?P<drafted>…).",
        ),
        click.option(
            "--spec-log",
            type=DIRECTORY,
            metavar="FILE",
            help="Log of the speculating server that tells acceptance.",
        ),
        click.option(
            "--spec-metrics",
            metavar="URL",
            help="The speculating server's counters, if they aren't at /metrics beside its API.",
        ),
        click.option(
            "--request",
            "request_fields",
            multiple=True,
            metavar="KEY=JSON",
            help="A further field of every request (repeatable; recorded).",
        ),
        click.option(
            "--stream/--no-stream", default=True, show_default=True, help="Ask servers for streams."
        ),
        click.option(
            "--api",
            type=click.Choice(["chat", "completions"]),
            help="Which API of the servers to ask (default: chat, or as the URL says).",
        ),
        click.option(
            "--switch-cmd",
            metavar="CMD",
            help="Makes the one server of --spec-url the arm in $GATE_ARM (plain, spec).",
        ),
        click.option(
            "--tokenizer",
            type=DIRECTORY,
            metavar="DIR",
            help="Directory with the served model's tokenizer.json.",
        ),
        click.option(
            "--served-model", metavar="NAME", help="Model to ask for (default: the server's first)."
        ),
        click.option(
            "--spec-url",
            metavar="URL",
            help="Gate this OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1. Key from $GATE_API_KEY.",
        ),
        click.option("--plain-url", metavar="URL", help="The same model served without speculation."),
    ):
        command = option(command)
    return command


def parse_serving(rest: dict[str, Any], ks: tuple[int, ...]) -> Serving | None:
    """The servers that the options name, or None. ks: what `--k` gave, empty if nothing. Raises click.UsageError for
    options that don't go together, EndpointError for a URL or a pattern."""
    context = click.get_current_context()
    model, plain_url, spec_url = context.params["model"], rest["plain_url"], rest["spec_url"]
    switch = rest["switch_cmd"]
    if spec_url is None:
        for name in OF_SERVERS:
            if _given(context, name):
                raise click.UsageError(f"{_option(context, name)} needs --spec-url.", context)
        if model is None:
            raise click.UsageError("Missing option '--model' (or '--plain-url' and '--spec-url').", context)
        return None
    ways = sum(way is not None for way in (model, plain_url, switch))
    if ways != 1:
        raise click.UsageError(
            "--spec-url needs one measure beside it: --plain-url (a server without speculation), --switch-cmd (the "
            f"same server, switched) or --model (the directory whose head is served); {ways or 'none'} was given.",
            context,
        )
    if plain_url == spec_url:
        raise click.UsageError(
            "--plain-url and --spec-url name the same server; --switch-cmd switches one.", context
        )
    if model is None:
        for name in OF_DIRECTORIES:
            if _given(context, name):
                raise click.UsageError(
                    f"{_option(context, name)} needs --model: nothing is known of a server's.", context
                )
    if len(ks) > 1:
        raise click.UsageError("--k: a server drafts with one K; gate each with a run of its own.", context)

    import msgspec

    from evals.endpoint.acceptance import log_pattern
    from evals.endpoint.address import parse_endpoint, parse_metrics_url, parse_request_field
    from gate.planning import Serving

    if rest["spec_log_pattern"] is not None and rest["spec_log"] is None:
        raise click.UsageError("--spec-log-pattern needs --spec-log.", context)
    asked: dict[str, Any] = {
        "api": rest["api"],
        "model": rest["served_model"],
        "stream": rest["stream"],
        "request": dict(parse_request_field(text) for text in rest["request_fields"]),
    }
    spec = parse_endpoint(spec_url, "--spec-url", **asked)
    plain = None if plain_url is None else parse_endpoint(plain_url, "--plain-url", **asked)
    if switch is not None:
        plain = spec = msgspec.structs.replace(spec, switched=True)
    return Serving(
        plain=plain,
        spec=spec,
        k=ks[0] if ks else int(model is not None),
        tokenizer=rest["tokenizer"],
        switch_command=switch,
        metrics_url=rest["spec_metrics"] and parse_metrics_url(rest["spec_metrics"], "--spec-metrics"),
        spec_log=rest["spec_log"],
        spec_log_pattern=log_pattern(rest["spec_log_pattern"]),
    )


def _given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)


def _option(context: click.Context, name: str) -> str:
    return next(p.opts[0] for p in context.command.params if p.name == name)
