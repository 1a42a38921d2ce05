"""`gate inspect`: what a model directory holds, and whether anything in it speaks against gating it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gate.cli.options import DIRECTORY, layout_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evals.inspection.graph import Port
    from evals.inspection.types import Inspection, Part


@click.command("inspect")
@click.option("--model", required=True, type=DIRECTORY, metavar="DIR", help="Model directory, or `sample`.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@click.option("--digests", is_flag=True, help="SHA-256 of target, head and all (reads every byte).")
@click.option(
    "--device", metavar="NAME", help="Compile the head there and look at what becomes of its experts."
)
@layout_option("--head")
def command(
    model: Path, as_json: bool, digests: bool, device: str | None, layout: Literal["genai", "split"] | None
) -> int:
    """Look at a model directory by its files, sizes and graphs, without loading weights.

    Exit code 0 if nothing speaks against gating it (that is no verdict), 2 if it is refused.
    """
    import msgspec

    from evals.inspection.directory import inspect_directory

    found = inspect_directory(
        _sample() if str(model) == "sample" else model,
        digests=digests,
        device=device,
        layout=layout,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        for line in lines(found):
            click.echo("".join(char if char.isprintable() else "�" for char in line))
    return 0 if found.servable else 2


def _sample() -> Path:
    from evals.sample import sample_dir

    return sample_dir()


def lines(found: Inspection) -> Iterator[str]:
    """What was found, for people; control characters in it are others' and not to be printed as they are."""
    from gate.units import show_size

    yield f"model       {found.path}  ({show_size(found.size)}, {found.model_type or 'of unknown type'})"
    yield f"head        layout: {found.layout}; layers declared: {_or_unknown(found.layers_declared)}"
    yield (
        f"target      hidden size {_or_unknown(found.hidden_size)}, {_or_unknown(found.vocabulary)} tokens "
        f"(tokenizer: {_or_unknown(found.tokens)}); embeddings tied: declared {_or_unknown(found.tied_declared)}, "
        f"found {_or_unknown(found.tied_found)}; decoder layers named: {_or_unknown(found.decoder_layers)}"
    )
    for part in found.parts:
        yield from _part(part)
    if found.draft is not None:
        cost = found.draft
        least = (
            ""
            if cost.least == cost.most
            else f", at least {show_size(cost.least)} with the chosen experts alone"
        )
        yield (
            f"draft       reads {show_size(cost.most)}: layer {show_size(cost.layer)}, lm_head "
            f"{show_size(cost.lm_head)}, embeddings {show_size(cost.embedding_row)}{least}"
        )
    if found.norms is not None:
        yield f"norms       median {found.norms.head:.3f} in the head, {found.norms.backbone:.3f} in the backbone"
    yield f"template    {', '.join(found.chat_template) or 'none'}"
    yield f"installed   {', '.join(f'{name} {number}' for name, number in found.installed.items())}"
    for name, digest in found.digests.items():
        yield f"sha256      {name:7} {digest}"
    for problem in found.problems:
        where = f"{problem.where}: " if problem.where else ""
        yield f"{problem.severity:11} [{problem.code}] {where}{problem.message}"
    yield "nothing here speaks against gating it" if found.servable else "refused"


def _part(part: Part) -> Iterator[str]:
    from gate.units import show_size

    yield f"part        {part.name} ({part.role}): {show_size(part.bytes)}, {part.parameters:,} parameters"
    for scheme in part.schemes:
        group = (
            ""
            if scheme.group is None
            else ", per channel"
            if scheme.group < 0
            else f", groups of {scheme.group}"
        )
        yield f"              {scheme.share:6.1%} {scheme.mode}{group} ({scheme.bits} bits, {show_size(scheme.bytes)})"
    if part.declared:
        yield f"              declared: {', '.join(f'{key} {value}' for key, value in part.declared.items())}"
    if part.role != "other":
        yield f"              in: {_ports(part.inputs)}; out: {_ports(part.outputs)}; {len(part.states)} states"
    if part.experts is not None:
        experts = part.experts
        yield f"              {experts.count} experts, {_or_unknown(experts.chosen)} chosen; read: {experts.read}"
    if part.versions and part.role != "other":
        yield f"              made with {', '.join(f'{name} {number}' for name, number in part.versions.items())}"


def _ports(ports: tuple[Port, ...]) -> str:
    shapes = (",".join("?" if side is None else str(side) for side in port.shape) for port in ports)
    return ", ".join(f"{port.name} [{shape}]" for port, shape in zip(ports, shapes, strict=True))


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value).lower()
