"""`gate check`: the main job. Validates everything first; heavy imports come last."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from gate.cli.check_endpoint import endpoint_options, parse_serving
from gate.cli.options import (
    DIRECTORY,
    DURATION,
    layout_option,
    policy_option,
    quiet_option,
    sandbox_option,
    shared_outputs,
    task_options,
)

SAMPLE = "sample"
SERVED = "a served model"
SETTINGS = (
    "repeats",
    "hang_s",
    "variants",
    "seed",
    "sequential",
    "control",
    "draft_leak",
    "state_probe",
    "fresh_starts",
    "cache",
    "layout",
    "engine",
)


@click.command("check")
@click.option(
    "--model",
    metavar="DIR",
    help="Model directory with an MTP head (with --draft or --prompt-lookup any, or a GGUF file), or `sample`.",
)
@click.option(
    "--k",
    "ks",
    multiple=True,
    type=int,
    metavar="K",
    help="Drafted tokens per verify step (repeatable; default 1).",
)
@click.option(
    "--out", type=DIRECTORY, metavar="DIR", help="Where records and report go (default: gate-runs/TIME)."
)
@task_options
@policy_option
@click.option("--device", default="CPU", show_default=True, help="OpenVINO device, e.g. GPU.0.")
@click.option(
    "--ov",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="OpenVINO property of target and head, e.g. KV_CACHE_PRECISION=f16 (repeatable; recorded).",
)
@click.option(
    "--scheduler",
    multiple=True,
    metavar="KEY=VALUE",
    help="SchedulerConfig setting, e.g. cache_size=4 (repeatable; recorded).",
)
@click.option(
    "--repeats",
    type=click.IntRange(2, 100),
    default=2,
    show_default=True,
    help="How often each arm decodes each prompt.",
)
@click.option("--budget", type=DURATION, metavar="TIME", help="Stop in time with what there is, e.g. 10m.")
@click.option(
    "--hang-timeout",
    "hang_s",
    type=DURATION,
    metavar="TIME",
    help="Silence that counts as a hang (default: from measured speed).",
)
@click.option(
    "--variants", type=click.IntRange(0, 10_000), default=0, metavar="N", help="N more wordings a task."
)
@click.option(
    "--depths",
    default="",
    metavar="N,N",
    help="Ask each task behind N tokens of filler too, e.g. 512,4096,16384.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of what is drawn (wordings, filler, permutations, batches).",
)
@click.option(
    "--concurrency",
    "concurrency",
    multiple=True,
    type=int,
    metavar="N",
    help="Requests in flight at once (repeatable: a verdict for each; default 1).",
)
@click.option(
    "--sequential/--interleaved",
    default=None,
    help="One engine in memory at a time, or all (default: by size).",
)
@click.option(
    "--head", "heads", multiple=True, metavar="NAME=DIR", help="Gate this head of the target (repeatable)."
)
@layout_option()
@click.option(
    "--engine",
    type=click.Choice(["openvino-genai", "openvino-split"]),
    help="What decodes all arms (default: openvino-genai, or openvino-split where a head has the split layout).",
)
@click.option(
    "--draft",
    type=DIRECTORY,
    metavar="DIR",
    help="Gate another model's drafts: its directory, EAGLE-3's or DFlash's.",
)
@click.option("--prompt-lookup", is_flag=True, help="Gate drafts looked up in the text so far.")
@click.option(
    "--max-ngram",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Tokens that --prompt-lookup matches at most (default 3).",
)
@click.option(
    "--control/--no-control", default=True, show_default=True, help="Decode with a permuted head too."
)
@click.option("--draft-leak", is_flag=True, help="Two control heads: do rejected drafts change the text?")
@click.option(
    "--state-probe/--no-state-probe",
    default=True,
    show_default=True,
    help="Ask the first prompt again after all others, and in a new session.",
)
@click.option(
    "--fresh-starts",
    type=click.IntRange(0, 100),
    default=0,
    metavar="N",
    help="Build each arm N times more and ask the first prompt each time.",
)
@click.option(
    "--cache", type=DIRECTORY, metavar="DIR", help="Reuse answers of equal arms, grades of equal programs."
)
@click.option("--remedies", is_flag=True, help="Decode blocked tasks again under the policy's remedies.")
@endpoint_options
@shared_outputs
@sandbox_option
@click.option("--allow-limits", is_flag=True, help="Exit with 0 for `serve with limits` too.")
@quiet_option
def command(
    model: str | None,
    ks: tuple[int, ...],
    out: Path | None,
    task_dirs: tuple[Path, ...],
    task_names: tuple[str, ...],
    policy: Path | None,
    device: str,
    properties: tuple[str, ...],
    scheduler: tuple[str, ...],
    heads: tuple[str, ...],
    draft: Path | None,
    prompt_lookup: bool,
    max_ngram: int | None,
    quiet: bool,
    allow_limits: bool,
    sandbox_name: str | None,
    **rest: Any,
) -> int:
    """Decode every task prompt plain and with the head, compare, grade, and give a verdict.

    \b
    gate check --model sample
    gate check --model DIR --task csv --k 3 --out runs/today --budget 10m
    gate check --plain-url http://127.0.0.1:8001/v1 --spec-url http://127.0.0.1:8002/v1

    Exit codes: 0 serve, 1 do not serve, 2 it could not start, 3 the evidence doesn't suffice.
    """
    from evals.arms import check_drafting, check_settings, parse_property, parse_scheduler
    from evals.batches import parse_concurrency
    from evals.heads import parse_head
    from gate.policy import default_policy_text, load_policy
    from tasks.depth import parse_depths
    from tasks.folder import load_tasks

    serving = parse_serving(rest, ks)
    ks = ks or (1,)
    scheduler_ = dict(parse_scheduler(text) for text in scheduler)
    properties_ = dict(parse_property(text) for text in properties)
    check_settings(ks, device, scheduler_)
    heads_ = tuple(parse_head(text) for text in heads)
    depths = parse_depths(rest["depths"]) if rest["depths"] else ()
    concurrency = parse_concurrency(rest["concurrency"])
    max_ngram = check_drafting(draft, prompt_lookup, max_ngram, heads=bool(heads), leak=rest["draft_leak"])
    every = load_tasks(task_dirs)
    chosen = load_tasks(task_dirs, task_names)
    policy_ = load_policy(policy, {task.name for task in every})
    policy_text = policy.read_text(encoding="utf-8") if policy else default_policy_text()
    out = out or Path("gate-runs") / time.strftime("%Y%m%d-%H%M%S")

    from gate.check import run_check
    from gate.cli.outputs import Shown, read_key, show_remedies, write_outputs
    from gate.cli.progress import TerminalProgress
    from gate.conclude import conclude
    from gate.planning import Settings
    from gate.served_check import run_served_check

    settings = Settings(
        model=resolve_model(model) if model is not None else Path(),
        model_name=SERVED if model is None else model if model == SAMPLE else Path(model).resolve().name,
        serving=serving,
        out=out,
        ks=ks,
        device=device,
        properties=properties_,
        scheduler=scheduler_,
        heads=heads_,
        concurrency=concurrency,
        draft=draft,
        max_ngram=max_ngram,
        sandbox_name=sandbox_name,
        budget_s=rest["budget"],
        depths=depths,
        **{name: rest[name] for name in SETTINGS},
    )
    with TerminalProgress(quiet) as progress:
        run = run_check if model is not None else run_served_check
        run(settings, chosen, policy_, policy_text, progress)
    shown = Shown(
        policy_text, allow_limits, quiet, rest["redact"], rest["github"], read_key(rest["sign_with"])
    )
    concluded = conclude(out, policy_)
    code = write_outputs(concluded, shown)
    if rest["remedies"]:
        show_remedies(settings, concluded, policy_)
    return code


def resolve_model(model: str) -> Path:
    """A directory, or the bundled sample where the name is `sample` and no such directory is here."""
    if model == SAMPLE and not Path(SAMPLE).exists():
        from evals.sample import sample_dir

        return sample_dir()
    return Path(model)
