"""The threat: a GGUF file that isn't one, or is cut, ends in a traceback or a hang; or the verdict speaks of the copy
that was made of it and not of the file."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from evals.gguf import digest_path, is_gguf, opened
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


@pytest.mark.engine
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"version https://git-lfs", "pointer file"),
        (b"", "begins with b''"),
        (b"GGUF", "openvino-genai can read"),
        (b"GGUF\x03\x00\x00\x00" + bytes(16), "openvino-genai can read"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, "openvino-genai can read"),
    ],
    ids=["pointer", "empty", "magic", "no-tensors", "absurd"],
)
def test_what_is_no_whole_model_is_a_sentence(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelDirError) as caught, opened(path, need_head=False):
        pass
    assert words in str(caught.value) and str(path) in str(caught.value)
    assert "Traceback" not in str(caught.value)
