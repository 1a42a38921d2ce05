"""The threat: a GGUF file that isn't one, or is cut, ends in a traceback or a hang; or the verdict speaks of the copy
that was made of it and not of the file."""

from __future__ import annotations

import hashlib
import shutil
import struct
from pathlib import Path

import pytest

from evals.gguf import digest_path, is_gguf, opened
from evals.gguf_header import read_header
from evals.model_dir import ModelDirError


def test_a_file_by_that_name_and_no_directory(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "dir.gguf").mkdir()
    assert is_gguf(tmp_path / "model.gguf")
    assert not is_gguf(tmp_path / "dir.gguf")
    assert not is_gguf(tmp_path / "none.gguf")


def test_its_own_digest_is_the_targets(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and more")
    found = digest_path(path)
    assert found.target == found.whole == hashlib.sha256(b"GGUF and more").hexdigest()
    assert found.head is None
    shutil.move(path, tmp_path / "renamed.gguf")
    assert digest_path(tmp_path / "renamed.gguf").target == found.target


def test_a_head_is_not_expected_of_it(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with (
        pytest.raises(ModelDirError, match="--prompt-lookup, or --draft DIR"),
        opened(tmp_path / "model.gguf", need_head=True),
    ):
        pass


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def gguf(**changed: object) -> bytes:
    """A whole file of one tensor, 64 numbers in Q4_1 (two blocks of 20 bytes), with parts of its header changed."""
    part = {
        "version": 3,
        "tensors": 1,
        "entries": 3,
        "architecture": "llama",
        "context": 4096,
        "name": text("t"),
        "kind": 3,
        "offset": 0,
        "rows": 2,
        **changed,
    }
    header = [
        struct.pack("<4sIQQ", b"GGUF", part["version"], part["tensors"], part["entries"]),
        text("general.architecture"), struct.pack("<I", 8), text(part["architecture"]),
        text("llama.context_length"), struct.pack("<II", 4, part["context"]),
        text("tokens"), struct.pack("<IIQ", 9, 8, 2), text("a"), text("bc"),
        part["name"], struct.pack("<IQQIQ", 2, 32, part["rows"], part["kind"], part["offset"]),
    ]  # fmt: skip
    written = b"".join(header)
    return written + bytes(-len(written) % 32) + bytes(40)


def test_a_header_says_what_it_is_of_and_where_its_weights_end(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    found = read_header(tmp_path / "m.gguf")
    assert (found.architecture, found.sizes) == ("llama", {"max_position_embeddings": 4096})
    assert found.needed == len(gguf())
    (tmp_path / "m.gguf").write_bytes(gguf(context=4_000_000_000))
    assert read_header(tmp_path / "m.gguf").sizes == {}, "a size beyond any model's is none"
    (tmp_path / "m.gguf").write_bytes(gguf(kind=99))  # a type that isn't known has a beginning at least
    assert read_header(tmp_path / "m.gguf").needed == len(gguf()) - 39


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"version https://git-lfs.github.com", "pointer file"),
        (b"", "begins with b''"),
        (b"GGUF", "the middle of the header"),
        (b"GGUF\x03\x00\x00\x00" + bytes(16), "no tensors"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, "tensors (at most"),
        (gguf()[:-1], "a cut download"),
        (gguf()[:150], "the middle of the header"),
        (gguf(architecture="\x1b[31m"), "no architecture's name"),
        (gguf(version=99), "version 99"),
        (gguf(tensors=1 << 60), f"{1 << 60} tensors"),
        (gguf(entries=1 << 60), f"{1 << 60} entries"),
        (gguf(entries=2), "of 9 dimensions"),
        (gguf(rows=1 << 62), "a cut download"),
        (gguf(offset=(1 << 64) - 1), "a cut download"),
        (gguf(name=struct.pack("<Q", 1 << 62) + b"t"), "the middle of the header"),
    ],
    ids=[
        "pointer", "empty", "magic", "no-tensors", "absurd", "byte-short", "cut-header", "architecture", "version",
        "tensors", "entries", "shifted", "rows", "offset", "name",
    ],
)  # fmt: skip
def test_what_is_no_whole_file_is_a_sentence(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelDirError) as caught, opened(path, need_head=False):
        pass
    assert words in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.engine
def test_what_the_engine_cannot_read_is_said_with_its_architecture(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf())
    with (
        pytest.raises(ModelDirError, match=r"openvino-genai can read.*one of llama"),
        opened(path, need_head=False),
    ):
        pass
