"""One look at a model directory: everything that files, sizes and graphs tell, put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from evals.digest import digest_dir, digest_model
from evals.inspection.chat import look_at_template
from evals.inspection.configs import Declared, declared_against_found, look_at_generation, read_declared
from evals.inspection.facts import decoder_layers, describe, draft_cost, part_problems, tied
from evals.inspection.graph import Graph
from evals.inspection.norms import compare_norms
from evals.inspection.pairing import Fit, Graphs, count_tokens, fit
from evals.inspection.runtime import experts_read
from evals.inspection.types import DraftCost, Inspection, Layout, Norms, Part, Problem, Role
from evals.inspection.versions import compare_versions, installed
from evals.inspection.whole import find_pointers, read_parts
from evals.model_dir import (
    EMBEDDINGS,
    GENAI_HEAD,
    SPLIT_HEAD,
    TARGETS,
    TOKENIZER,
    HeadLayout,
    ModelDir,
    ModelDirError,
    inspect_model,
    list_files,
    require_decodable,
)

_SEVERITIES = ("error", "warning", "note")
_T = TypeVar("_T")


def inspect_directory(
    path: str | Path, *, digests: bool = False, device: str | None = None, layout: HeadLayout | None = None
) -> Inspection:
    """Look at a directory. digests: hash every file too (at disk speed). device: compile the head there, in a child.
    layout: which head to look at where both are.

    Raises ModelDirError only where there is no directory that can be listed; all else is a Problem in the result.
    """
    root = Path(path)
    sizes = list_files(root)
    problems: list[Problem] = []
    model = _attempt(problems, "directory", partial(inspect_model, root, layout=layout))
    if model is not None:
        _attempt(problems, "not-decodable", partial(require_decodable, model))
    said = " ".join(problem.message for problem in problems)
    if model is not None and model.head is not None and model.declared_layers is None:
        message = "says nothing of mtp_num_hidden_layers: the head that is there isn't declared."
        problems.append(Problem("head-undeclared", "note", message, "config.json"))
    graphs, broken = read_parts(root, sizes)
    problems += [p for p in broken if p.code not in ("part-broken", "weights-short") or p.where not in said]
    problems += find_pointers(root, sizes)
    declared = read_declared(root)
    pair = _pair(graphs, model, layout)
    parts = _parts(graphs, pair, problems)
    if device is not None:
        parts = _on_device(root, parts, device, problems)
    for part in parts:
        problems += [*part_problems(part), *_expert_problems(part, device)]
    here = installed()
    problems += compare_versions(parts, here)
    tokens = _attempt(problems, "damaged-file", partial(count_tokens, root))
    found = None if pair is None else _fitting(pair, tokens, declared, parts, problems)
    tokenizer = graphs.get(TOKENIZER[0])
    templates, traps = look_at_template(
        root, None if tokenizer is None else tokenizer.info.get("chat_template")
    )
    problems += [*traps, *look_at_generation(root, declared, _tokenizer_stop(tokenizer))]
    hashes = _attempt(problems, "damaged-file", partial(_digests, root, model)) if digests else None
    return Inspection(
        schema=1,
        path=str(root),
        servable=not any(problem.severity == "error" for problem in problems),
        layout=_layout(sizes),
        target=None if pair is None else pair.target.file.stem,
        model_type=declared.model_type,
        size=sum(sizes.values()),
        layers_declared=declared.mtp_layers,
        hidden_size=None if found is None else found.fit.hidden_size,
        vocabulary=None if found is None else found.fit.vocabulary,
        tokens=tokens,
        tied_declared=declared.tied,
        tied_found=None if found is None else found.tied,
        decoder_layers=None if found is None else found.layers,
        parts=parts,
        draft=None if found is None else found.draft,
        norms=None if found is None else found.norms,
        chat_template=templates,
        installed=here,
        device=device,
        digests=hashes or {},
        problems=tuple(sorted(problems, key=lambda problem: _SEVERITIES.index(problem.severity))),
    )


class _Fitting(msgspec.Struct, frozen=True):
    """What only target and head together tell."""

    fit: Fit
    tied: bool | None
    layers: int | None
    norms: Norms | None
    draft: DraftCost | None


def _attempt(problems: list[Problem], code: str, look: Callable[[], _T]) -> _T | None:
    try:
        return look()
    except ModelDirError as error:
        problems.append(Problem(code, "error", str(error)))
        return None


def _fitting(
    pair: Graphs, tokens: int | None, declared: Declared, parts: tuple[Part, ...], problems: list[Problem]
) -> _Fitting:
    found = fit(pair, tokens)
    layers, unfit = decoder_layers(pair.target, declared.layers)
    problems += [*found.problems, *unfit]
    problems += declared_against_found(declared, found.hidden_size, found.vocabulary)
    same = _attempt(problems, "weights-short", partial(tied, pair.target, found))
    if same is not None and declared.tied is not None and same != declared.tied:
        message = f"tie_word_embeddings is {str(declared.tied).lower()}, the weights say {str(same).lower()}."
        problems.append(Problem("config-mismatch", "warning", message, "config.json"))
    norms = draft = None
    if pair.head is not None:
        compared = _attempt(problems, "weights-short", partial(compare_norms, pair.head, pair.target))
        norms, suspicion = compared or (None, None)
        problems += [] if suspicion is None else [suspicion]
        described = next((part for part in parts if part.role == "head"), None)
        draft = draft_cost(pair.head, None if described is None else described.experts, found, pair.lm_head)
    return _Fitting(found, same, layers, norms, draft)


def _parts(graphs: dict[str, Graph], pair: Graphs | None, problems: list[Problem]) -> tuple[Part, ...]:
    described = (
        _attempt(problems, "weights-short", partial(describe, stem, graph, _role(graph, pair)))
        for stem, graph in sorted(graphs.items())
    )
    return tuple(part for part in described if part is not None)


def _layout(sizes: dict[str, int]) -> Layout:
    def present(stem: str) -> bool:
        return f"{stem}.xml" in sizes or f"{stem}.bin" in sizes

    exported = present(GENAI_HEAD[0])
    halves = sum(present(stem) for stem in SPLIT_HEAD)
    if exported and halves:
        return "both"
    if halves:
        return "split" if halves == len(SPLIT_HEAD) else "half"
    return "exported" if exported else "none"


def _pair(graphs: dict[str, Graph], model: ModelDir | None, layout: HeadLayout | None) -> Graphs | None:
    """The graphs that must fit, as far as they could be read."""
    target = next((graphs[stem] for stem in TARGETS if stem in graphs), None)
    if target is None:
        return None
    chosen = layout or (None if model is None else model.head)
    split = chosen == "split" or (chosen is None and GENAI_HEAD[0] not in graphs)
    layer = SPLIT_HEAD[0] if split and SPLIT_HEAD[0] in graphs else GENAI_HEAD[0]
    return Graphs(
        target=target,
        head=graphs.get(layer),
        lm_head=graphs.get(SPLIT_HEAD[1]) if split else None,
        embeddings=graphs.get(EMBEDDINGS),
    )


def _role(graph: Graph, pair: Graphs | None) -> Role:
    if pair is None:
        return "other"
    named: tuple[tuple[Role, Graph | None], ...] = (
        ("target", pair.target),
        ("head", pair.head),
        ("lm_head", pair.lm_head),
        ("embeddings", pair.embeddings),
    )
    return next((role for role, other in named if other is graph), "other")


def _on_device(root: Path, parts: tuple[Part, ...], device: str, problems: list[Problem]) -> tuple[Part, ...]:
    """The parts with the head's experts as the device reads them. A head that doesn't compile is an error."""
    done = []
    for part in parts:
        if part.role == "head":
            look = partial(experts_read, root / f"{part.name}.xml", device)
            read = _attempt(problems, "not-compiled", look)
            if read is not None and part.experts is not None:
                part = msgspec.structs.replace(part, experts=msgspec.structs.replace(part.experts, read=read))
        done.append(part)
    return tuple(done)


def _expert_problems(part: Part, device: str | None) -> list[Problem]:
    experts = part.experts
    if experts is None or part.role != "head":
        return []
    where = f"{part.name}.xml"
    needed = "" if experts.bytes_chosen is None else f" ({experts.bytes_chosen} needed for {experts.chosen})"
    if experts.read == "all":
        message = (
            f"{device} computes all {experts.count} experts and reads {experts.bytes_all} bytes a draft{needed}: such "
            "a head can be slower than plain decoding. Gate its speed."
        )
        return [Problem("experts-dense", "warning", message, where)]
    if experts.read == "unknown":
        message = (
            f"{experts.count} experts, {experts.bytes_all} bytes if all are read{needed}: the graph can't tell which; "
            "name the device that will serve (--device)."
        )
        return [Problem("experts-unknown", "note", message, where)]
    return []


def _tokenizer_stop(tokenizer: Graph | None) -> int | None:
    text = "" if tokenizer is None else tokenizer.info.get("eos_token_id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _digests(root: Path, model: ModelDir | None) -> dict[str, str]:
    if model is None:
        return {"whole": digest_dir(root)}
    made = digest_model(model)
    return {"whole": made.whole, "target": made.target, **({"head": made.head} if made.head else {})}
