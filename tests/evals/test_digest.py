"""The threat: a verdict that is bound to other bytes than those that were decoded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evals.digest import changed_files, digest_dir, digest_model
from evals.model_dir import ModelDir, ModelDirError

HEAD = ("openvino_mtp_model.bin", "openvino_mtp_model.xml")


def model(path: Path) -> ModelDir:
    names = sorted(p.name for p in path.iterdir() if p.is_file())
    return ModelDir(
        path=path,
        target="openvino_model",
        target_files=tuple(n for n in names if n not in HEAD),
        head="genai",
        head_files=HEAD,
        declared_layers=1,
        model_type=None,
        size=0,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("openvino_model.bin", "openvino_model.xml", "config.json", *HEAD):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_equal_bytes_give_equal_digests_wherever_they_lie(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("links")
    for file in directory.iterdir():
        (other / file.name).symlink_to(file)
    assert digest_model(model(directory)) == digest_model(model(other))


def test_a_changed_byte_shows_in_its_part_only(directory: Path) -> None:
    before = digest_model(model(directory))
    (directory / HEAD[0]).write_bytes(b"openvino_mtp_model.biN")
    after = digest_model(model(directory))
    assert after.whole != before.whole
    assert after.head != before.head
    assert after.target == before.target
    assert changed_files(before.files, after.files) == (HEAD[0],)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: (d / "new.txt").write_text(""),
        lambda d: (d / "config.json").unlink(),
        lambda d: (d / "config.json").rename(d / "config2.json"),
        lambda d: (d / "config.json").write_bytes((d / "config.json").read_bytes() + b"\0"),
        lambda d: (d / "sub").mkdir() or (d / "sub" / "x").write_text(""),
    ],
    ids=["added", "removed", "renamed", "longer", "deeper"],
)
def test_any_change_shows_in_the_whole_and_in_the_target(
    change: Callable[[Path], object], directory: Path
) -> None:
    before = digest_model(model(directory))
    change(directory)
    after = digest_model(model(directory))
    assert after.whole != before.whole
    assert after.target != before.target
    assert after.head == before.head
    assert digest_dir(directory) == after.whole


def test_the_manifest_is_what_the_docstring_says(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"x")
    (tmp_path / "a").write_bytes(b"")
    lines = b"".join(
        hashlib.sha256(data).hexdigest().encode() + b" %d %s\0" % (len(data), name)
        for name, data in ((b"a", b""), (b"b", b"x"))
    )
    assert digest_dir(tmp_path) == hashlib.sha256(lines).hexdigest()


def test_hidden_files_are_left_out(directory: Path) -> None:
    before = digest_dir(directory)
    (directory / ".cache").mkdir()
    (directory / ".cache" / "etag").write_text("1")
    assert digest_dir(directory) == before


def test_odd_names_are_digested_or_refused(directory: Path) -> None:
    before = digest_dir(directory)
    (directory / "a\nb \x1b[31m").write_bytes(b"")
    assert digest_dir(directory) != before
    Path(os.fsdecode(os.fsencode(directory) + b"/\xff")).write_bytes(b"")
    with pytest.raises(ModelDirError, match="expected a name in UTF-8"):
        digest_dir(directory)


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelDirError):
        digest_dir(tmp_path / "nowhere")
