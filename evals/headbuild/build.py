"""`gate head build`: a checkpoint's head beside an exported target, in the split layout, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from evals.headbuild.checkpoint import Checkpoint, read_checkpoint
from evals.headbuild.formats import Format
from evals.headbuild.layer import build_layer
from evals.headbuild.lm_head import cut_lm_head, read_model
from evals.inspection.directory import inspect_directory
from evals.model_dir import GENAI_HEAD, SPLIT_HEAD, HeadLayout, ModelDir, ModelDirError, inspect_model
from evals.new_dir import new_directory, refuse_existing, take_files

KV_PRECISION = ["runtime_options", "KV_CACHE_PRECISION"]


class Built(msgspec.Struct, frozen=True):
    """What was written. layer, lm_head: bytes of the weights. experts: 0 for a dense head."""

    path: Path
    layer: int
    lm_head: int
    experts: int


def build_head(checkpoint: Path, base: Path, out: Path, form: Format) -> Built:
    """Write `out`: the files of `base` without its head (hard links where possible), and the rebuilt head.

    Raises ModelDirError for a checkpoint without one whole head, a base that is no exported target or of another
    hidden size, and a place that is taken; nothing is left at `out` then.
    """
    refuse_existing(out)
    source = read_checkpoint(checkpoint)
    layout: HeadLayout | None = "genai" if (base / f"{GENAI_HEAD[0]}.xml").exists() else None
    target = inspect_model(base, need_head=False, layout=layout)
    _check_pair(source, target)
    with new_directory(out) as made:
        take_files(target.path, without_heads(target), made)
        write_head(source, target, made, form)
        check_built(made, out, "split")
        sizes = [(made / f"{stem}.bin").stat().st_size for stem in SPLIT_HEAD]
    return Built(path=out, layer=sizes[0], lm_head=sizes[1], experts=source.experts)


def write_head(source: Checkpoint, target: ModelDir, out: Path, form: Format) -> None:
    """Write the two graphs of the split layout. Raises ModelDirError."""
    import openvino

    xml = target.path / f"{target.target}.xml"
    layer = build_layer(source, form)
    _same_cache(layer, read_model(xml))
    openvino.save_model(layer, out / f"{SPLIT_HEAD[0]}.xml", compress_to_fp16=False)
    del layer
    openvino.save_model(cut_lm_head(xml), out / f"{SPLIT_HEAD[1]}.xml", compress_to_fp16=False)


def _same_cache(layer: Any, target: Any) -> None:
    """Ask for the target's KV precision, if its runtime information names one: so that all arms have the same."""
    if target.has_rt_info(KV_PRECISION):
        layer.set_rt_info(target.get_rt_info(KV_PRECISION).value, KV_PRECISION)


def without_heads(target: ModelDir) -> tuple[str, ...]:
    """A directory's files but those of heads, in any layout, used or not."""
    stems = (*GENAI_HEAD, *SPLIT_HEAD)
    return tuple(
        name for name in target.target_files if not name.startswith(tuple(f"{stem}." for stem in stems))
    )


def _check_pair(source: Checkpoint, target: ModelDir) -> None:
    found = inspect_directory(target.path, layout=target.head)
    for name, ours, theirs in (
        ("hidden size", source.text.hidden_size, found.hidden_size),
        ("vocabulary", source.text.vocab_size, found.vocabulary),
    ):
        if theirs is not None and ours != theirs:
            raise ModelDirError(
                f"{target.path}: expected a target with {name} {ours}, as {source.path} has, found {theirs}. "
                "Give the export of the same checkpoint as --base."
            )


def check_built(made: Path, out: Path, layout: HeadLayout) -> None:
    """Look at what was written as `gate inspect` does. Raises ModelDirError for what it refuses."""
    found = inspect_directory(made, layout=layout)
    wrong = [p for p in found.problems if p.severity == "error" and p.code != "not-decodable"]
    if wrong:
        said = wrong[0].message.replace(str(made), str(out))
        raise ModelDirError(f"{out}: what was built doesn't pass inspection, and was removed: {said}")
