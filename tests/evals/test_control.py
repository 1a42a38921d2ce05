"""The threat: a yardstick that is none: a control head that still drafts, or differs in more than its weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from evals.arms import build_arms, control_paths
from evals.control import MIN_ELEMENTS, control_head
from evals.decode import Asked, Decoding, Plan
from evals.digest import digest_model
from evals.engine.prepare import prepare
from evals.model_dir import ModelDirError, inspect_model
from evals.tokens import TokenTable
from tests.evals.split_dirs import split_sample

XML, BIN = "openvino_mtp_model.xml", "openvino_mtp_model.bin"


def spans(xml: bytes) -> list[tuple[str, int, int]]:
    found = re.findall(rb'element_type="(\w+)" shape="[^"]*" offset="(\d+)" size="(\d+)"', xml)
    return [(kind.decode(), int(offset), int(size)) for kind, offset, size in found]


def test_weights_move_within_themselves_and_nothing_else_does(sample_dir: Path) -> None:
    model = inspect_model(sample_dir)
    with control_head(model, 3) as control:
        assert (control.path / XML).read_bytes() == (sample_dir / XML).read_bytes()
        before = np.fromfile(sample_dir / BIN, np.uint8)
        after = np.fromfile(control.path / BIN, np.uint8)
        assert len(before) == len(after)
        moved = 0
        for kind, offset, size in spans((sample_dir / XML).read_bytes()):
            width = {"f32": 4, "f16": 2}.get(kind, 1)
            one = before[offset : offset + size].reshape(-1, width)
            two = after[offset : offset + size].reshape(-1, width)
            if kind.startswith("i64") or len(one) <= MIN_ELEMENTS:
                assert (one == two).all()
            else:
                moved += 1
                assert not (one == two).all()
                assert sorted(map(bytes, one)) == sorted(map(bytes, two))
        assert moved >= control.permuted > 0
        for name in model.target_files:
            assert (control.path / name).samefile(sample_dir / name)
    assert not control.path.exists()
    assert (sample_dir / BIN).read_bytes() == before.tobytes()


def test_of_a_split_head_the_layer_is_permuted_and_the_lm_head_stays(
    sample_dir: Path, tmp_path: Path
) -> None:
    root = split_sample(sample_dir, tmp_path / "m")
    model = inspect_model(root)
    with control_head(model, 1) as control:
        found = inspect_model(control.path)
        assert found.head == "split"
        assert control.digest == digest_model(found).head != digest_model(model).head
        assert digest_model(found).target == digest_model(model).target
        for name in model.head_files:
            same = (control.path / name).read_bytes() == (root / name).read_bytes()
            assert same == (name != "openvino_mtp_layer.bin")


def test_the_seed_decides(sample_dir: Path) -> None:
    model = inspect_model(sample_dir)
    with control_head(model, 1) as one, control_head(model, 1) as again, control_head(model, 2) as other:
        assert one.digest == again.digest != other.digest
        assert one.digest == digest_model(inspect_model(one.path)).head
        assert one.digest != digest_model(model).head


def test_indices_and_small_constants_stay_where_they_are(tmp_path: Path) -> None:
    constants = [("f32", 4, 2000), ("i64", 8, 2000), ("f32", 4, 1000), ("u4", 1, 3000), ("boolean", 1, 2000)]
    xml, data = b"<net>", b""
    for kind, width, count in constants:
        values = np.random.default_rng(len(data)).integers(0, 256, width * count, dtype=np.uint8).tobytes()
        xml += b'<data element_type="%s" shape="%d" offset="%d" size="%d" />' % (
            kind.encode(), count, len(data), len(values),
        )  # fmt: skip
        data += values
    for stem in ("openvino_model", "openvino_mtp_model"):
        (tmp_path / f"{stem}.xml").write_bytes(xml)
        (tmp_path / f"{stem}.bin").write_bytes(data)
    with control_head(inspect_model(tmp_path), 1) as control:
        after = (control.path / BIN).read_bytes()
        assert control.permuted == 2
    changed = [after[o : o + s] != data[o : o + s] for _, o, s in spans(xml)]
    assert changed == [True, False, False, True, False]


def test_a_directory_without_a_head_has_no_control(sample_dir: Path, tmp_path: Path) -> None:
    for file in sample_dir.iterdir():
        if "mtp" not in file.name:
            (tmp_path / file.name).symlink_to(file)
    with (
        pytest.raises(ModelDirError, match="found none"),
        control_head(inspect_model(tmp_path, need_head=False), 1),
    ):
        pass


def test_a_head_without_weights_is_refused(sample_dir: Path, tmp_path: Path) -> None:
    for file in sample_dir.iterdir():
        if file.name != XML:
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / XML).write_text('<net><data element_type="i64" shape="2" offset="0" size="16" /></net>')
    with pytest.raises(ModelDirError, match="to permute"), control_head(inspect_model(tmp_path), 1):
        pass


@pytest.mark.engine
def test_a_control_arm_drafts_and_nothing_is_accepted(sample_dir: Path, known_texts: tuple[str, str]) -> None:
    model = inspect_model(sample_dir)
    rendered = prepare(model, known_texts[1:]).rendered
    with control_head(model, 1) as control:
        arms = build_arms(digest_model(model), ks=(2,), controls=[control])
        plan = Plan(
            model=sample_dir,
            arms=arms,
            repeats={},
            asked=(Asked("t", "p", rendered[0], 40),),
            stop_ids=TokenTable.load(sample_dir).stop_ids,
            heads=control_paths(arms, [control]),
        )
        with Decoding(plan) as decoding:
            answers = {a.arm: a for a in decoding}
    refused = answers["control@2"]
    assert refused.failure is None
    assert refused.drafted is not None and refused.accepted is not None
    assert refused.drafted > 20
    assert refused.accepted / refused.drafted < 0.02
    taken = answers["mtp@2"]
    assert taken.accepted is not None and taken.accepted > refused.accepted
    assert max(refused.steps) <= 3
