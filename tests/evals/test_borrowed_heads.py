"""The threat: a head that is named beside its target (`--head NAME=DIR`) isn't looked at as the target's own is, so one
of another model is decoded for hours and then blamed for what it was never made for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evals.digest import digest_model
from evals.heads import borrowed_head
from evals.model_dir import ModelDirError, inspect_model
from tests.evals.inspection_dirs import HEAD, TARGET, edited, linked, save_lm_head


def _wide(sample: Path, into: Path) -> None:
    edited(sample, into, f"{HEAD}.xml", ('shape="?,?,256"', 'shape="?,?,320"'))


def _target(sample: Path, into: Path) -> None:
    linked(sample, into, without=(f"{HEAD}.xml", f"{HEAD}.bin"))
    for end in ("xml", "bin"):
        (into / f"{HEAD}.{end}").symlink_to(sample / f"{TARGET}.{end}")


def _cut(sample: Path, into: Path) -> None:
    linked(sample, into, own=(f"{HEAD}.bin",))
    (into / f"{HEAD}.bin").write_bytes((into / f"{HEAD}.bin").read_bytes()[:-64])


def _vocabulary(sample: Path, into: Path) -> None:
    linked(sample, into, without=(f"{HEAD}.xml", f"{HEAD}.bin"))
    for end in ("xml", "bin"):
        (into / f"openvino_mtp_layer.{end}").symlink_to(sample / f"{HEAD}.{end}")
    save_lm_head(into, 256, 77)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_wide, ["320", "hidden size is 256"]),
        (_target, ["no MTP head"]),
        (_cut, ["cut download"]),
        (_vocabulary, ["77 tokens"]),
    ],
)
def test_a_head_that_does_not_belong_is_refused_undecoded(
    make: Callable[[Path, Path], None], words: list[str], sample_dir: Path, tmp_path: Path
) -> None:
    make(sample_dir, tmp_path / "other")
    with (
        pytest.raises(ModelDirError) as caught,
        borrowed_head(inspect_model(sample_dir), "other", tmp_path / "other"),
    ):
        pass
    for word in (str(tmp_path / "other"), *words):
        assert word in str(caught.value)


def test_a_head_alone_in_its_directory_is_taken(sample_dir: Path, tmp_path: Path) -> None:
    model = inspect_model(sample_dir)
    for end in ("xml", "bin"):
        (tmp_path / f"{HEAD}.{end}").symlink_to(sample_dir / f"{HEAD}.{end}")
    with borrowed_head(model, "own", tmp_path) as head:
        assert head.digest == digest_model(model).head
        assert inspect_model(head.path).layer == HEAD
    assert not head.path.exists()
