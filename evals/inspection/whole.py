"""Are the parts whole? Graph and weights both there, constants inside the file, nothing left over, values that count.

A cut download leaves a file short, one that reserved its space leaves it full of zeros, and a mixed-up copy leaves
weights that no constant of the graph speaks of.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from evals.inspection.graph import Graph, read_graph
from evals.inspection.types import Problem
from evals.inspection.values import unsound_constants
from evals.model_dir import POINTER, ModelDir, ModelDirError, list_files

MAX_GRAPHS = 64
LEFT_OVER = 0.01
"""Share of a weights file that may lie behind the last constant: padding. Exports of OpenVINO 2026 leave none."""

PADDING = 4096


def read_parts(root: Path, sizes: dict[str, int]) -> tuple[dict[str, Graph], list[Problem]]:
    """Every graph at the top of a directory that can be read, by stem, and what is wrong with the others and these."""
    problems: list[Problem] = []
    stems = sorted({name[:-4] for name in sizes if _is_part(name)})
    if len(stems) > MAX_GRAPHS:
        message = f"expected at most {MAX_GRAPHS} graphs, found {len(stems)}; the others weren't looked at."
        problems.append(Problem("too-many-graphs", "error", message))
    graphs = {}
    for stem in stems[:MAX_GRAPHS]:
        graph = _part(root, stem, sizes, problems)
        if graph is not None:
            graphs[stem] = graph
    return graphs, problems


def require_whole(model: ModelDir) -> None:
    """Raise ModelDirError where any graph of the directory, its weights or a small file is damaged.

    A part that text doesn't need counts too: a directory that was damaged in one place is no one's export any more.
    """
    sizes = list_files(model.path)
    problems = find_pointers(model.path, sizes) + read_parts(model.path, sizes)[1]
    for problem in problems:
        if problem.severity == "error":
            raise ModelDirError(f"{model.path / problem.where}: {problem.message}")


def _is_part(name: str) -> bool:
    return "/" not in name and name.startswith("openvino_") and name.endswith((".xml", ".bin"))


def _part(root: Path, stem: str, sizes: dict[str, int], problems: list[Problem]) -> Graph | None:
    xml, weights = f"{stem}.xml", f"{stem}.bin"
    for name in (xml, weights):
        if not sizes.get(name):
            how = "is empty (pointer file or cut download)" if name in sizes else "missing"
            problems.append(Problem("part-broken", "error", f"broken: {name} {how}. Fetch it again.", name))
    if not sizes.get(xml):
        return None
    try:
        graph = read_graph(root / xml)
    except ModelDirError as error:
        problems.append(Problem("graph-unreadable", "error", _without_path(error, root / xml), xml))
        return None
    if sizes.get(weights):
        problems += _weights(graph, weights, sizes[weights])
    return graph


def _weights(graph: Graph, name: str, size: int) -> list[Problem]:
    if graph.needed > size:
        message = (
            f"broken: {size} bytes, its graph needs {graph.needed} (a cut download, or files of two exports). "
            "Fetch it again."
        )
        return [Problem("weights-short", "error", message, name)]
    over = size - graph.needed
    if over > max(PADDING, size * LEFT_OVER):
        message = (
            f"{over} of {size} bytes lie behind the last constant of {graph.file.name}: the weights of another graph. "
            "Take both files from one export."
        )
        return [Problem("weights-foreign", "error", message, name)]
    return [*_overlapping(graph), *_values(graph, name)]


def _values(graph: Graph, name: str) -> list[Problem]:
    try:
        looked, zeros, infinite = unsound_constants(graph)
    except ModelDirError as error:
        return [Problem("weights-short", "error", _without_path(error, graph.weights_file), name)]
    if infinite:
        message = f"{infinite} of {looked} scales and norms looked at hold values that aren't finite: damaged weights."
        return [Problem("weights-not-finite", "error", message, name)]
    if zeros * 2 > looked:
        message = (
            f"{zeros} of {looked} scales and norms looked at are zero throughout: a download that reserved its space "
            "and never filled it. Fetch it again."
        )
        return [Problem("weights-zero", "error", message, name)]
    return []


def _overlapping(graph: Graph) -> list[Problem]:
    """A warning where two constants share a part of their bytes. Sharing all of them is usual."""
    spans = {(c.offset, c.size): c.name for c in graph.consts.values() if c.size}
    last, end = "", 0
    for (offset, size), name in sorted(spans.items()):
        if offset < end:
            message = (
                f"the constants {last[-48:]} and {name[-48:]} share a part of their bytes, as no export writes them: "
                "its offsets are damaged, or another tool wrote it."
            )
            return [Problem("weights-overlap", "warning", message, graph.file.name)]
        last, end = name, offset + size
    return []


def find_pointers(root: Path, sizes: dict[str, int]) -> list[Problem]:
    """An error where small files of the top level are what Git LFS leaves in place of the real ones."""
    found = []
    for name, size in sorted(sizes.items()):
        if size < 1024 and "/" not in name and name.endswith((".json", ".jinja", ".xml", ".bin")):
            with contextlib.suppress(OSError), (root / name).open("rb") as file:
                if file.read(len(POINTER)) == POINTER:
                    found.append(name)
    if not found:
        return []
    names = ", ".join(found[:6]) + (", …" if len(found) > 6 else "")
    message = f"{len(found)} Git LFS pointer files in place of the real ones ({names}). Run git lfs pull."
    return [Problem("pointer-files", "error", message, found[0])]


def _without_path(error: ModelDirError, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")
