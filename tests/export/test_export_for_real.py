"""The threat: an exporter of other versions, or a checkpoint stored otherwise, gives a head that is another one.

`make test-export` runs this: it needs the exporter's environment (1.6 GB), which `gate export` makes itself. Or name an
interpreter that has it with GATE_EXPORTER_PYTHON.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import openvino
import pytest

from evals.export.environment import clean_environment
from evals.headbuild.checkpoint import read_checkpoint
from evals.headbuild.formats import Format, WeightFormat
from evals.headbuild.layer import build_layer
from tests.evals.checkpoints import MODELS
from tests.evals.test_headbuild import drawn, run
from tests.export.sources import (
    DENSE,
    DENSE_F16,
    MIXED,
    MIXED_F16,
    Checkpoints,
    Exported,
    Source,
    command,
)
from tests.fixtures.pictures import asked_about_colours

pytestmark = pytest.mark.timeout(900)

BITS: dict[WeightFormat, set[int]] = {"fp32": {32}, "fp16": {16}, "int8": {8}, "int4": {4, 8}}
"""Format → bits that a matrix of the head may have then; int4 leaves a dense layer's last at int8."""

SAME: dict[WeightFormat, float] = {"fp32": 1e-5, "fp16": 1e-3, "int8": 1e-3, "int4": 1e-3}
"""Format → how far hidden states may lie from those of the head rebuilt in it, of the largest."""

EVERY: list[tuple[Source, WeightFormat]] = [
    *((DENSE, weight_format) for weight_format in BITS),
    *((MIXED, weight_format) for weight_format in BITS),
    (DENSE_F16, "fp32"),
    (DENSE_F16, "int4"),
    (MIXED_F16, "fp16"),
    (MIXED_F16, "int8"),
]


@pytest.mark.parametrize(("source", "weight_format"), EVERY, ids=str)
def test_a_16_bit_checkpoint_gives_its_own_head_in_every_format(
    source: Source, weight_format: WeightFormat, exported: Exported, checkpoint_of: Checkpoints
) -> None:
    out = exported(source, weight_format)
    found = json.loads(command("inspect", "--model", out, "--json", "--device", "CPU"))
    assert found["layout"] == "exported"
    (part,) = (part for part in found["parts"] if part["role"] == "head")
    assert {scheme["bits"] for scheme in part["schemes"]} <= BITS[weight_format]
    head = read_checkpoint(checkpoint_of(source))
    if head.experts:
        assert (part["experts"]["count"], part["experts"]["chosen"]) == (8, 2)
        assert part["experts"]["read"] == "chosen"
    else:
        assert part["experts"] is None
    if head.experts and weight_format in ("int8", "int4"):
        return  # the exporter rounds the router too, and other experts are chosen then (docs/heads.md)
    given = drawn(head.text.hidden_size)
    ours = run(build_layer(head, Format(weight_format)), *given, steps=[8, 1, 3])
    theirs = run(openvino.Core().read_model(out / "openvino_mtp_model.xml"), *given, steps=[8, 1, 3])
    assert np.abs(ours - theirs).max() / np.abs(theirs).max() < SAME[weight_format]


@pytest.mark.parametrize(("source", "weight_format"), [(DENSE, "int8"), (MIXED, "int4")], ids=str)
def test_an_exported_directory_is_asked_about_a_picture(
    source: Source, weight_format: WeightFormat, exported: Exported
) -> None:
    """Every checkpoint of the family is a vision-language one; plain and with its head it says which colour it sees."""
    for colour, answer in asked_about_colours(exported(source, weight_format)):
        assert colour in answer


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_the_recorded_reference_is_what_transformers_computes(
    tmp_path: Path, python: Path, name: str
) -> None:
    here = Path(__file__).parent
    made = tmp_path / "made.npz"
    arguments = [str(python), str(here / "reference_layer.py"), str(MODELS / name), str(made)]
    subprocess.run(arguments, check=True, env=clean_environment())
    recorded, again = (np.load(file) for file in (here.parent / f"fixtures/mtp_reference_{name}.npz", made))
    for key in ("hidden", "embeds", "positions"):
        assert np.array_equal(recorded[key], again[key])
    assert np.abs(recorded["output"] - again["output"]).max() < 1e-5
