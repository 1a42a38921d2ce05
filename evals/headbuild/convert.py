"""`gate head convert`: the same head in the other layout, where that changes nothing about what it drafts.

One layer graph serves both layouts, so it is taken over byte for byte. What differs is the lm_head: the exported layout
has none and decodes drafts with the target's; the split one brings its own, which must then be the target's too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from evals.headbuild.build import check_built, without_heads
from evals.headbuild.layer import INPUTS, OUTPUT
from evals.headbuild.lm_head import cut_lm_head
from evals.inspection.graph import Graph, read_graph
from evals.model_dir import GENAI_HEAD, SPLIT_HEAD, HeadLayout, ModelDir, ModelDirError, inspect_model
from evals.new_dir import new_directory, refuse_existing, take_files

_CHUNK = 1 << 20


def convert_head(model: Path, out: Path, to: HeadLayout) -> Path:
    """Write `out`: the files of `model`, its head in layout `to`. Returns `out`.

    Raises ModelDirError where the head is in that layout already, its layer has another interface than the exported
    one, or the split layout's lm_head isn't the target's; nothing is left at `out` then.
    """
    refuse_existing(out)
    found = _source(model, to)
    layer = SPLIT_HEAD[0] if to == "genai" else GENAI_HEAD[0]
    _check_interface(read_graph(found.path / f"{layer}.xml"))
    with new_directory(out) as made:
        take_files(found.path, without_heads(found), made)
        _write(found, layer, made, to)
        check_built(made, out, to)
    return out


def _source(model: Path, to: HeadLayout) -> ModelDir:
    """The directory with its one head. Raises ModelDirError where that is in the layout asked for already."""
    found = inspect_model(model)
    if found.head == to:
        stems = GENAI_HEAD if to == "genai" else SPLIT_HEAD
        raise ModelDirError(
            f"{model}: expected a head in the other layout, found {' and '.join(stems)} already."
        )
    return found


def _write(found: ModelDir, layer: str, made: Path, to: HeadLayout) -> None:
    import openvino

    take_files(found.path, (f"{layer}.xml", f"{layer}.bin"), made)
    stem = GENAI_HEAD[0] if to == "genai" else SPLIT_HEAD[0]
    for end in ("xml", "bin"):
        (made / f"{layer}.{end}").rename(made / f"{stem}.{end}")
    cut = made / f"{SPLIT_HEAD[1]}.xml"
    openvino.save_model(cut_lm_head(found.path / f"{found.target}.xml"), cut, compress_to_fp16=False)
    if to == "split":
        return
    ours, theirs = read_graph(found.path / f"{SPLIT_HEAD[1]}.xml"), read_graph(cut)
    if _weights(ours) != _weights(theirs):
        raise ModelDirError(
            f"{ours.file}: expected the target's own lm_head, found other weights: the exported layout decodes "
            "drafts with the target's, so that the head would draft otherwise. Build it again with gate head build."
        )
    for file in (cut, cut.with_suffix(".bin")):
        file.unlink()


def _check_interface(layer: Graph) -> None:
    names = {port.name for port in layer.parameters}
    outputs = {name for port in layer.results for name in port.name.split(",")}
    if names != set(INPUTS) or OUTPUT not in outputs or len(layer.states) != 2:
        raise ModelDirError(
            f"{layer.file}: expected inputs {', '.join(INPUTS)}, output {OUTPUT} and two states, found "
            f"{', '.join(sorted(names))[:200]}, {', '.join(sorted(outputs))[:80]} and {len(layer.states)}: a layer of "
            "another interface can't change its layout. Build it again with gate head build."
        )


def _weights(graph: Graph) -> Counter[tuple[str, tuple[int, ...], str]]:
    """Type, shape and SHA-256 of every constant of more than one element."""
    found: Counter[tuple[str, tuple[int, ...], str]] = Counter()
    with graph.weights_file.open("rb") as file:
        for const in graph.consts.values():
            if const.elements > 1:
                file.seek(const.offset)
                digest, left = hashlib.sha256(), const.size
                while left > 0:
                    chunk = file.read(min(left, _CHUNK))
                    if not chunk:
                        raise ModelDirError(
                            f"{graph.weights_file}: ends within {const.name[-80:]}. Fetch it again."
                        )
                    digest.update(chunk)
                    left -= len(chunk)
                found[const.type, const.shape, digest.hexdigest()] += 1
    return found
