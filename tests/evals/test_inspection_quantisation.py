"""The threat: a part's quantisation is read wrongly off its graph, or not seen at all, and the report says so with
confidence. Graphs are what nncf itself makes of the same small model, in each of its modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from evals.inspection.facts import describe, part_problems
from evals.inspection.graph import read_graph

EVERY = 512 * 256 * 2 + 4 * 256 * 256
"""Parameters: embeddings, four square layers, lm_head."""


def model() -> ov.Model:
    rng = np.random.default_rng(0)

    def weight(rows: int) -> ov.Node:
        return ops.constant(rng.standard_normal((rows, 256)).astype(np.float32))

    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    states = ops.gather(weight(512), ids, ops.constant(np.int32(0)))
    for _ in range(4):
        states = ops.relu(ops.matmul(states, weight(256), False, True))
    return ov.Model([ops.matmul(states, weight(512), False, True)], [ids], "m")


MIXED = {"int8_asym": (-1, 0.5)}
MODES: dict[str, tuple[dict[str, Any], dict[str, tuple[int | None, float]]]] = {
    "INT8_SYM": ({}, {"int8_sym": (-1, 1.0)}),
    "INT8_ASYM": ({}, {"int8_asym": (-1, 1.0)}),
    "INT4_SYM": ({"group_size": 32}, {"int4_sym": (32, 0.5), **MIXED}),
    "INT4_ASYM": ({"group_size": 64, "all_layers": True}, {"int4_asym": (64, 1.0)}),
    "INT4_ASYM per channel": ({"group_size": -1}, {"int4_asym": (-1, 0.5), **MIXED}),
    "INT4_ASYM ratio": ({"group_size": 64, "ratio": 0.8}, {"int4_asym": (64, 0.375), "int8_asym": (-1, 0.625)}),
    "INT4_SYM no backup": (
        {"group_size": 128, "ratio": 0.5, "backup_mode": "NONE"},
        {"int4_sym": (128, 0.125), "f32": (None, 0.875)},
    ),
    "INT4_SYM other backup": ({"backup_mode": "INT8_SYM"}, {"int4_sym": (128, 0.5), "int8_sym": (-1, 0.5)}),
    "NF4": ({"group_size": 64}, {"nf4": (64, 0.5), **MIXED}),
    "FP8_E4M3": ({"group_size": 64}, {"fp8_e4m3": (64, 1.0)}),
    "MXFP4": ({}, {"mxfp4": (32, 0.5), "mxfp8_e4m3": (32, 0.5)}),
    "MXFP8_E4M3": ({}, {"mxfp8_e4m3": (32, 1.0)}),
    "NVFP4": ({}, {"nvfp4": (16, 0.5), **MIXED}),
    "CB4": ({"group_size": 64, "all_layers": True}, {"cb4": (64, 1.0)}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODES)
def test_each_of_nncfs_modes_is_read_off_the_graph(name: str, tmp_path: Path) -> None:
    import nncf

    settings, expected = MODES[name]
    if "backup_mode" in settings:
        settings = {**settings, "backup_mode": nncf.BackupMode[settings["backup_mode"]]}
    mode = nncf.CompressWeightsMode[name.partition(" ")[0]]
    ov.save_model(
        nncf.compress_weights(model(), mode=mode, **settings), tmp_path / "m.xml", compress_to_fp16=False
    )
    part = describe("m", read_graph(tmp_path / "m.xml"), "target")
    assert part.parameters == EVERY
    assert {scheme.mode: (scheme.group, scheme.share) for scheme in part.schemes} == expected
    assert part.declared["mode"] == mode.value and part.declared["ratio"] == f"{settings.get('ratio', 1):g}"
    assert part_problems(part) == []
    weights = sum(scheme.bytes for scheme in part.schemes)
    assert weights <= (tmp_path / "m.bin").stat().st_size <= weights + 1024, "every byte is some weight's"
