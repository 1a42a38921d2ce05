"""What lies in a directory where a model was expected: said so that the user knows what to name or fetch instead."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

UNFINISHED = (".incomplete", ".part", ".partial", ".tmp", ".aria2", ".crdownload")
"""How downloaders name a file that isn't whole yet."""

_CHECKPOINT = (".safetensors", ".pt", ".pth")


def instead_of_a_model(names: Iterable[str], targets: tuple[str, ...]) -> str:
    """What a directory holds that has none of the target graphs. names: of its files, relative. targets: stems."""
    names = sorted(names)
    below = sorted(
        {str(path.parent) for name in names if (path := PurePosixPath(name)).stem in targets} - {"."}
    )
    if below:
        which = "that directory" if len(below) == 1 else "one of these directories"
        return f"models in {_some(below)}; name {which}"
    halves = [name for name in names if PurePosixPath(name).stem in targets]
    if halves:
        return f"{_some(halves)} without it; fetch it again"
    near = [name for name in names if name.lower().rpartition(".")[0] in targets]
    if near:
        return f"{_some(near)} (names are case-sensitive); rename the files"
    unfinished = [name for name in names if name.endswith(UNFINISHED)]
    if unfinished:
        return f"a download that isn't finished ({_some(unfinished)}); fetch it again"
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if gguf:
        return f"a GGUF file ({_some(gguf)}); name the file itself, with --prompt-lookup or --draft"
    if any(name.endswith(_CHECKPOINT) or name.startswith("pytorch_model") for name in names):
        return "a checkpoint that isn't exported yet; export it with gate export"
    return f"{len(names)} other files ({_some(names)})" if names else "an empty directory"


def unfinished_copy(name: str, names: Iterable[str]) -> str:
    """A sentence on the unfinished download of a file that is missing; "" where there is none."""
    found = [other for other in names if other.startswith(f"{name}.") and other.endswith(UNFINISHED)]
    return f" Its download isn't finished ({_some(found)})." if found else ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
