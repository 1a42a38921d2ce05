"""What drafts in place of the model's own head: another model's directory (`--draft DIR`), or the text so far.

openvino-genai 2026.4.1 takes a draft directory three ways, told apart by what its graph says of itself: an EAGLE-3
draft (runtime information eagle3_mode), a DFlash draft (dflash_mode), or else a whole model that drafts for another.
A directory with an MTP head would be taken for that head instead, so it is refused here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from evals.digest import digest_dir
from evals.inspection.graph import Graph, read_graph
from evals.model_dir import (
    GENAI_HEAD,
    SPLIT_HEAD,
    TOKENIZER,
    ModelDir,
    ModelDirError,
    check_graph,
    list_files,
)

GRAPH = "openvino_model"
"""The only graph that openvino-genai looks for in a draft's directory."""

MAX_NGRAM = 3
"""Longest run of tokens that prompt lookup looks for in the text so far, where the user doesn't say."""

DrafterKind = Literal["draft", "eagle3", "dflash"]

_MODES: dict[str, DrafterKind] = {"eagle3_mode": "eagle3", "dflash_mode": "dflash"}


class Drafter(msgspec.Struct, frozen=True):
    """A directory that drafts. kind: also the method of its arms. digest: SHA-256 over all its files."""

    kind: DrafterKind
    path: Path
    digest: str


def inspect_drafter(target: ModelDir, path: Path) -> Drafter:
    """Look at a draft's directory beside its target's, by files and graphs alone.

    Raises ModelDirError for what openvino-genai can't draft with: no directory, no graph named openvino_model, a broken
    one, an MTP head in it, or another vocabulary than the target's.
    """
    sizes = list_files(path)
    for stem in (*GENAI_HEAD, *SPLIT_HEAD):
        if f"{stem}.xml" in sizes:
            raise ModelDirError(
                f"--draft {path}: expected a model that drafts, found an MTP head ({stem}.xml), which the runtime "
                "would use in its place. Gate that head with --head NAME=DIR, or leave its files out of the directory."
            )
    if f"{GRAPH}.xml" not in sizes:
        found = ", ".join(sorted(name for name in sizes if name.endswith(".xml"))[:4]) or "no graph"
        raise ModelDirError(
            f"--draft {path}: expected {GRAPH}.xml, the only name that the runtime looks for, found {found}. Export a "
            "text-generation model."
        )
    check_graph(path, GRAPH, sizes)
    graph = read_graph(path / f"{GRAPH}.xml")
    kind: DrafterKind = "draft"
    for mode, other in _MODES.items():
        if graph.info.get(mode, "").lower() in ("true", "1"):
            kind = other
    if kind == "draft":
        _check_model(path, graph, sizes, target)
    elif "hidden_states" not in {port.name for port in graph.parameters}:
        raise ModelDirError(
            f"--draft {path}: its graph says that it is an {kind} draft, but has no input hidden_states. Export it "
            "again."
        )
    elif target.source is not None:
        raise ModelDirError(
            f"--draft {path}: an {kind} draft reads the hidden states of the target, which the runtime finds by "
            f"the names of its layers; {target.source} is a GGUF file and has none. Export the checkpoint itself."
        )
    return Drafter(kind=kind, path=path, digest=digest_dir(path))


def _check_model(path: Path, graph: Graph, sizes: dict[str, int], target: ModelDir) -> None:
    lacking = [f"{part}.xml" for part in TOKENIZER if f"{part}.xml" not in sizes]
    if lacking:
        raise ModelDirError(
            f"--draft {path}: expected a whole model with its tokenizer, found no {', no '.join(lacking)}. Export "
            "it again."
        )
    for part in TOKENIZER:
        check_graph(path, part, sizes)
    ours, theirs = (_vocabulary(g) for g in (read_graph(target.path / f"{target.target}.xml"), graph))
    if ours is not None and theirs is not None and ours != theirs:
        raise ModelDirError(
            f"--draft {path}: expected a model of the target's vocabulary ({ours} tokens), found one of {theirs}. Its "
            "drafts would be other words: choose a smaller model of the same family."
        )


def _vocabulary(graph: Graph) -> int | None:
    named = [port for port in graph.results if "logits" in port.name.split(",")]
    return named[0].shape[-1] if named and named[0].shape else None
