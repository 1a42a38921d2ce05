"""A GGUF file as the target: converted once for the run, into a directory that is gone afterwards.

openvino-genai reads the file and saves it as the graphs it would run (`evals.engine.convert`), so that what is decoded,
replayed and inspected is one thing. The verdict speaks of the file: its SHA-256 is the target's digest.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from evals.digest import ModelDigests, digest_model
from evals.engine.child import child_environment, essence
from evals.gguf_header import read_header
from evals.model_dir import HeadLayout, ModelDir, ModelDirError, inspect_model

CONVERT: tuple[str, ...] = (sys.executable, "-P", "-m", "evals.engine.convert")
TIMEOUT_S = 1800.0


def is_gguf(path: Path) -> bool:
    """Whether a path names one GGUF file, by its name."""
    return path.suffix.lower() == ".gguf" and path.is_file()


@contextmanager
def opened(path: Path, *, need_head: bool, layout: HeadLayout | None = None) -> Iterator[ModelDir]:
    """The target at `path`: a model directory as it is, or a GGUF file as a directory that lasts as long as this.

    Raises ModelDirError as `inspect_model` does, and for a file that isn't a whole GGUF model, that can't be converted,
    or that would need a head.
    """
    if not is_gguf(path):
        yield inspect_model(path, need_head=need_head, layout=layout)
        return
    if need_head:
        raise ModelDirError(
            f"{path}: expected a target with an MTP head, found a GGUF file, which has none. Speculate another way: "
            "--prompt-lookup, or --draft DIR."
        )
    with tempfile.TemporaryDirectory(prefix="gate-gguf-") as temporary:
        _convert(path, Path(temporary))
        model = inspect_model(temporary, need_head=False)
        yield msgspec.structs.replace(model, source=path)


def digest_path(path: Path, layout: HeadLayout | None = None) -> ModelDigests:
    """Digests of a model directory or of a GGUF file. layout: which of two heads. Raises ModelDirError."""
    if is_gguf(path):
        return digest_gguf(path)
    return digest_model(inspect_model(path, need_head=False, layout=layout))


def digest_target(model: ModelDir) -> ModelDigests:
    """The same of a target that is `opened`."""
    return digest_model(model) if model.source is None else digest_gguf(model.source)


def digest_gguf(path: Path) -> ModelDigests:
    """The file's own SHA-256 is the target's and the whole's. Raises ModelDirError."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelDirError(f"{path}: cannot be read ({error}). Check its permissions.") from error
    return ModelDigests(whole=found, target=found, head=None, files={path.name: found})


def _convert(path: Path, directory: Path) -> None:
    header = read_header(path)
    try:
        ended = subprocess.run(
            [*CONVERT, str(path.resolve()), str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelDirError(f"{path}: converting it took over {TIMEOUT_S:.0f} s; it was ended.") from None
    if ended.returncode != 0:
        last = essence(ended.stdout[-2000:].decode("utf-8", "replace"))
        raise ModelDirError(
            f"{path}: expected a GGUF model that openvino-genai can read (llama, qwen2 or qwen3 architecture), found "
            f"one of {header.architecture[:40]}: {last}"
        )
    (directory / "config.json").write_bytes(msgspec.json.encode(header.sizes))
