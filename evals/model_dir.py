"""What lies in a model directory: target, head, layout. Read off the files and their sizes, never off config alone.

Exports drop heads that config declares, ship half of one, or ship two; a repository's name proves nothing
(arcint's head card, cases C05). No weights are loaded: graphs are looked at as text, for the bytes they need.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from evals.model_hints import instead_of_a_model, unfinished_copy

TARGETS = ("openvino_language_model", "openvino_model")
GENAI_HEAD = ("openvino_mtp_model",)
SPLIT_HEAD = ("openvino_mtp_layer", "openvino_mtp_lm_head")
TOKENIZER = ("openvino_tokenizer", "openvino_detokenizer")
EMBEDDINGS = "openvino_text_embeddings_model"
VISION = "openvino_vision_embeddings_model"

MAX_CONFIG = 4 << 20
MAX_FILES = 10_000
MAX_XML = 64 << 20
"""Bytes of a graph. One of 8 layers has 1.2 MB, so one of a hundred has 15 MB."""

_CHUNK = 1 << 20
_SPAN = re.compile(rb'offset="(\d{1,19})" (?:shape="[^"]{0,128}" )?size="(\d{1,19})"')
_OVERLAP = 256
POINTER = b"version https://git-lfs"

_HINTS = {
    ".xml": "It looks like one file of a model: give its directory.",
    ".bin": "It looks like one file of a model: give its directory.",
    ".gguf": "A GGUF file is read as --model alone, by gate check with --prompt-lookup or --draft, and by gate verify.",
}
"""What a file's name suggests, where a directory was expected."""

HeadLayout = Literal["genai", "split"]
_Layers = Annotated[int, msgspec.Meta(ge=0, le=1024)]


class ModelDirError(ValueError):
    """A directory that can't be used as asked: the message says expected, found, where, and what to do."""


class ModelDir(msgspec.Struct, frozen=True):
    """A directory whose files hold a target and, where `head` is not None, one whole head.

    target: the target graph's stem. head: the head's layout, "genai" (one graph, the target's lm_head is grafted) or
    "split" (layer and lm_head, each a graph). layer, lm_head: stems of the head's graphs; lm_head is None where the
    target's is shared. Names are relative to `path`. target_files: every file that isn't a head's, hidden ones left
    out. declared_layers: config's mtp_num_hidden_layers, None where it says nothing. size: bytes of all files. missing:
    what decoding needs and isn't there. source: the GGUF file that it was made of.
    """

    path: Path
    target: str
    target_files: tuple[str, ...]
    head: HeadLayout | None
    head_files: tuple[str, ...]
    declared_layers: int | None
    model_type: str | None
    size: int
    missing: tuple[str, ...] = ()
    source: Path | None = None
    layer: str | None = None
    lm_head: str | None = None


class _TextConfig(msgspec.Struct, frozen=True):
    mtp_num_hidden_layers: _Layers | None = None


class _Config(msgspec.Struct, frozen=True):
    mtp_num_hidden_layers: _Layers | None = None
    model_type: str | None = None
    text_config: _TextConfig | None = None


def inspect_model(path: str | Path, *, need_head: bool = True, layout: HeadLayout | None = None) -> ModelDir:
    """Look at a directory. With need_head=False a target without any head is accepted too (head is None).

    layout: which head to take where both are there; "split" beside a lone lm_head takes optimum-intel's layer with it.

    Raises ModelDirError for a path that isn't there, a directory that is no model, and a head that is absent, broken,
    ambiguous, undeclared or of an unsupported depth.
    """
    root = Path(path)
    sizes = list_files(root)
    config = _config(root, sizes)
    target = _target(root, sizes)
    top, nested = config.mtp_num_hidden_layers, (config.text_config or _TextConfig()).mtp_num_hidden_layers
    declared = top if nested is None else nested
    stems = head_stems(root, sizes, layout)
    if not stems and need_head:
        raise ModelDirError(_no_head(root, sizes, declared))
    if stems:
        if None not in (top, nested) and top != nested:
            raise ModelDirError(
                f"{root}/config.json: mismatch: mtp_num_hidden_layers is {top} at its top and {nested} in text_config. "
                "Copy the file from the export."
            )
        _check_declared(root, stems[0], declared)
    head_files = tuple(f"{stem}.{end}" for stem in stems for end in ("bin", "xml"))
    helpers = (stem for stem in (*TOKENIZER, EMBEDDINGS) if f"{stem}.xml" in sizes)
    for stem in (target, *stems, *helpers):
        check_graph(root, stem, sizes)
    return ModelDir(
        path=root,
        target=target,
        target_files=tuple(sorted(name for name in sizes if not of_a_head(name))),
        head=None if not stems else "split" if len(stems) > 1 else "genai",
        head_files=head_files,
        declared_layers=declared,
        model_type=config.model_type,
        size=sum(sizes.values()),
        missing=_missing(target, sizes, split=len(stems) > 1),
        layer=stems[0] if stems else None,
        lm_head=stems[1] if len(stems) > 1 else None,
    )


def require_decodable(model: ModelDir) -> None:
    """Raise ModelDirError where no engine has a way to decode this directory, and say which part is lacking."""
    if model.missing:
        raise ModelDirError(
            f"{model.path}: expected a whole export, found no {', no '.join(model.missing)}. An export that failed "
            "half-way leaves graphs without a tokenizer: export again and look at its exit code."
        )


def require_vision(model: ModelDir, prompt: str) -> None:
    """Raise ModelDirError where the directory has no vision part, or a broken one, to show a prompt's picture to."""
    if f"{VISION}.xml" not in model.target_files:
        raise ModelDirError(
            f"{model.path}: expected a vision-language export, since the prompt {prompt} shows a picture; found no "
            f"{VISION}.xml. Name the tasks without pictures with --task, or export with --task image-text-to-text."
        )
    sizes = list_files(model.path)
    for name in model.target_files:
        if name.startswith("openvino_vision_") and name.endswith(".xml"):
            check_graph(model.path, name[:-4], sizes)


def list_files(root: Path) -> dict[str, int]:
    """Relative name → size in bytes of every regular file under root, links to files followed, hidden names left out.

    Raises ModelDirError for a path that isn't a readable directory, a dangling link, something that is no regular
    file (reading a pipe would hang), a name that isn't UTF-8 (records and engines can't say it), and more than 10,000
    files.
    """
    _require_utf8(root)
    if not root.exists():
        raise ModelDirError(
            f"{root}: expected a model directory, found nothing there. Check the path's spelling."
        )
    if not root.is_dir():
        hint = _HINTS.get(root.suffix.lower(), "")
        raise ModelDirError(
            f"{root}: expected a directory exported for OpenVINO, found a file. {hint}".rstrip()
        )
    sizes: dict[str, int] = {}
    pending = [root]
    try:
        while pending:
            for entry in sorted(pending.pop().iterdir()):
                if entry.name.startswith("."):
                    continue
                _require_utf8(entry)
                if entry.is_dir():
                    if not entry.is_symlink():
                        pending.append(entry)
                    continue
                sizes[str(entry.relative_to(root))] = _file_size(entry)
                if len(sizes) > MAX_FILES:
                    raise ModelDirError(
                        f"{root}: expected a model directory, found more than {MAX_FILES} files."
                    )
    except OSError as error:
        raise ModelDirError(f"{root}: cannot be read ({error}). Check its permissions.") from error
    return sizes


def _require_utf8(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ModelDirError(
            f"{str(path)!a}: expected a name in UTF-8, found other bytes. Rename it."
        ) from None


def _file_size(entry: Path) -> int:
    try:
        status = entry.stat()
    except FileNotFoundError:
        raise ModelDirError(
            f"{entry}: a link whose file isn't there (a download that was cut, or a cleared cache). Fetch it again."
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise ModelDirError(f"{entry}: expected a regular file, found a pipe, socket or device. Remove it.")
    return status.st_size


def _config(root: Path, sizes: dict[str, int]) -> _Config:
    if "config.json" not in sizes:
        return _Config()
    if sizes["config.json"] > MAX_CONFIG:
        raise ModelDirError(
            f"{root}/config.json: expected at most {MAX_CONFIG} bytes, found {sizes['config.json']}."
        )
    try:
        read = (root / "config.json").read_bytes()
        if read.startswith(POINTER):
            raise ModelDirError(f"{root}: broken: config.json is a Git LFS pointer file. Run git lfs pull.")
        return msgspec.json.decode(read, type=_Config)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ModelDirError(
            f"{root}/config.json: expected a model's configuration, found: {error}. Copy the file from the export."
        ) from error
    except OSError as error:
        raise ModelDirError(f"{root}/config.json: cannot be read ({error}).") from error


def _target(root: Path, sizes: dict[str, int]) -> str:
    found = [stem for stem in TARGETS if f"{stem}.xml" in sizes]
    if len(found) > 1:
        raise ModelDirError(
            f"{root}: ambiguous, found two targets ({' and '.join(found)}). Keep the one that is served."
        )
    if found:
        return found[0]
    names = " or ".join(f"{stem}.xml" for stem in TARGETS)
    raise ModelDirError(f"{root}: not a model: expected {names}, found {instead_of_a_model(sizes, TARGETS)}.")


def head_stems(root: Path, sizes: dict[str, int], layout: HeadLayout | None) -> tuple[str, ...]:
    """Stems of the head's graphs: the layer, and its lm_head in the split layout; () without a head.

    sizes: of the directory's files, by name. Raises ModelDirError where there are two heads and no layout is named, and
    for half of one.
    """
    exported, layer, lm_head = (_present(stem, sizes) for stem in (*GENAI_HEAD, *SPLIT_HEAD))
    if exported and (layer or lm_head) and layout is None:
        halves = " with ".join(stem for stem in SPLIT_HEAD if _present(stem, sizes))
        raise ModelDirError(
            f"{root}: ambiguous: two heads ({GENAI_HEAD[0]}, and {halves}). Name one (--layout exported, --layout "
            "split), or keep each in a directory of its own."
        )
    if exported and layout != "split":
        return GENAI_HEAD
    if lm_head and layout != "genai" and (layer or exported):
        return (SPLIT_HEAD[0] if layer else GENAI_HEAD[0], SPLIT_HEAD[1])
    if layout is None and not layer and not lm_head:
        return ()
    if layout == "genai":
        raise ModelDirError(
            f"{root}: no head: --layout exported names {GENAI_HEAD[0]}, which isn't there. Name the layout that is."
        )
    raise ModelDirError(
        f"{root}: broken: {SPLIT_HEAD[layer]}.* missing; the split layout needs {' and '.join(SPLIT_HEAD)}. "
        "Fetch the missing half."
    )


def _present(stem: str, sizes: dict[str, int]) -> bool:
    return f"{stem}.xml" in sizes or f"{stem}.bin" in sizes


def _no_head(root: Path, sizes: dict[str, int], declared: int | None) -> str:
    near = sorted(
        name for name in sizes if "mtp" in name.lower() and name.lower().endswith((".xml", ".bin", ".onnx"))
    )
    expected = f"expected {GENAI_HEAD[0]}.xml and .bin"
    if near:
        exact = any(name.lower().startswith((*GENAI_HEAD, *SPLIT_HEAD)) for name in near)
        why = "names are case-sensitive" if exact else "the name must match"
        return f"{root}: no head: {expected}, found {', '.join(near[:4])} ({why}). Rename the files."
    if declared:
        layers = "1 layer" if declared == 1 else f"{declared} layers"
        return (
            f"{root}: no head: declared in config ({layers}) but no openvino_mtp_* file; {expected}. Older exporters "
            "drop the head: export the checkpoint again (gate export), or rebuild its head (gate head build)."
        )
    return (
        f"{root}: no head: {expected}, found none, and config declares none. Choose an export that has one, or "
        "speculate another way (--prompt-lookup, --draft DIR)."
    )


def _check_declared(root: Path, stem: str, declared: int | None) -> None:
    if declared == 0:
        raise ModelDirError(
            f"{root}: mismatch: head file present ({stem}), config declares 0 layers (mtp_num_hidden_layers). The head "
            "may belong to another model: take both from one export."
        )
    if declared is not None and declared > 1:
        raise ModelDirError(
            f"{root}: unsupported: {declared} MTP layers declared, one exported ({stem}). Expected "
            "mtp_num_hidden_layers = 1, the only depth that optimum-intel exports."
        )


def check_graph(root: Path, stem: str, sizes: dict[str, int]) -> None:
    """Raise ModelDirError unless both of a graph's files are there and the weights are as long as the graph needs."""
    for name in (f"{stem}.xml", f"{stem}.bin"):
        if name not in sizes:
            raise ModelDirError(
                f"{root}: broken: {name} missing.{unfinished_copy(name, sizes)} Fetch it again, or export again."
            )
        if sizes[name] == 0:
            raise ModelDirError(
                f"{root}: broken: {name} is empty (pointer file or cut download). Fetch it again."
            )
    if sizes[f"{stem}.xml"] > MAX_XML:
        raise ModelDirError(
            f"{root}: broken: {stem}.xml has {sizes[f'{stem}.xml']} bytes, no OpenVINO graph has over {MAX_XML}. "
            "Export again."
        )
    try:
        for name in (f"{stem}.xml", f"{stem}.bin"):
            with (root / name).open("rb") as file:
                start = file.read(4096)
            if start.startswith(POINTER):
                raise ModelDirError(f"{root}: broken: {name} is a Git LFS pointer file. Run git lfs pull.")
            if name.endswith(".xml") and b"<net" not in start:
                raise ModelDirError(f"{root}: broken: {name} is no OpenVINO graph. Export again.")
        needed = _bytes_needed(root / f"{stem}.xml")
    except OSError as error:
        raise ModelDirError(f"{root}: {stem} cannot be read ({error}). Check its permissions.") from error
    if needed > sizes[f"{stem}.bin"]:
        raise ModelDirError(
            f"{root}: broken: {stem}.bin has {sizes[f'{stem}.bin']} bytes, its graph needs {needed} (a cut download, "
            "or files of two exports). Fetch it again."
        )


def _bytes_needed(xml: Path) -> int:
    """End of the last constant that a graph takes from its weights file, in bytes."""
    needed, rest = 0, b""
    with xml.open("rb") as file:
        while chunk := file.read(_CHUNK):
            window = rest + chunk
            for match in _SPAN.finditer(window):
                needed = max(needed, int(match[1]) + int(match[2]))
            rest = window[-_OVERLAP:]
    return needed


def of_a_head(name: str) -> bool:
    """Whether a file's name is that of a head's, in either layout."""
    return name.rpartition(".")[0] in (*GENAI_HEAD, *SPLIT_HEAD)


def _missing(target: str, sizes: dict[str, int], *, split: bool) -> tuple[str, ...]:
    stems = [*TOKENIZER, *([EMBEDDINGS] if split or target == "openvino_language_model" else [])]
    wanted = [*(f"{stem}.{end}" for stem in stems for end in ("xml", "bin")), "tokenizer.json", "config.json"]
    return tuple(name for name in wanted if not sizes.get(name))
