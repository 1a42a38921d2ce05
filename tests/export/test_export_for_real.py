"""The threat: an exporter of other versions, or a checkpoint stored otherwise, gives a head that is another one.

`make test-export` runs this: it needs the exporter's environment (1.6 GB), which `gate export` makes itself. Or name an
interpreter that has it with GATE_EXPORTER_PYTHON.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from evals.export.environment import clean_environment, exporter_python
from evals.headbuild.build import build_head
from evals.headbuild.checkpoint import read_checkpoint
from evals.headbuild.convert import convert_head
from evals.headbuild.formats import Format
from evals.headbuild.layer import build_layer
from evals.inspection.directory import inspect_directory
from evals.inspection.runtime import experts_read
from gate.cli import gate
from tests.evals.checkpoints import MODELS, read, write
from tests.evals.test_headbuild import drawn, run

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def python() -> Path:
    named = os.environ.get("GATE_EXPORTER_PYTHON")
    return exporter_python(Path(named) if named else None, print)


def narrow(to: Path, source: str, loose: bool) -> Path:
    """The sample's checkpoint as real ones are: bf16 throughout; loose: the head's experts one by one."""
    to.mkdir()
    for file in (MODELS / source).iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            (to / file.name).symlink_to(file)
    config: dict[str, Any] = json.loads((MODELS / source / "config.json").read_text())
    config["dtype"] = config["text_config"]["dtype"] = "bfloat16"
    (to / "config.json").write_text(json.dumps(config))
    header, data = read(MODELS / source / "model.safetensors")
    made: dict[str, np.ndarray] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*entry["data_offsets"])]
        wide = entry["dtype"] == "F32"
        values = np.frombuffer(raw, "<u4" if wide else "<u2").reshape(entry["shape"])
        values = (values >> 16).astype("<u2") if wide else values
        if loose and name.endswith("experts.gate_up_proj") and name.startswith("mtp."):
            for number, both in enumerate(values):
                for which, half in zip(("gate", "up"), np.split(both, 2), strict=True):
                    made[name.replace("gate_up_proj", f"{number}.{which}_proj.weight")] = half
        elif loose and name.endswith("experts.down_proj") and name.startswith("mtp."):
            for number, down in enumerate(values):
                made[name.replace("down_proj", f"{number}.down_proj.weight")] = down
        else:
            made[name] = values
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in made.items():
        part = values.tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(part)],
        }
        data += part
    write(to / "model.safetensors", header, data)
    return to


def exported(python: Path, checkpoint: Path, out: Path, weight_format: str) -> Path:
    told = CliRunner().invoke(
        gate,
        [
            "export",
            "--checkpoint",
            str(checkpoint),
            "--out",
            str(out),
            "--weight-format",
            weight_format,
            "--exporter-python",
            str(python),
        ],
        standalone_mode=False,
    )
    assert told.return_value == 0, told.exception
    return out


@pytest.mark.parametrize(
    ("source", "loose", "weight_format"),
    [
        ("qwen3_5", False, "fp32"),
        ("qwen3_5_moe", True, "fp32"),
        ("qwen3_5", False, "int4"),
        ("qwen3_5_moe", False, "int4"),
    ],
)
def test_exported_and_rebuilt_heads_are_one(
    tmp_path: Path, python: Path, source: str, loose: bool, weight_format: str
) -> None:
    """bf16 checkpoints, at the formats that need most care: hidden states within 1e-3 at f32; both layouts whole."""
    import openvino

    checkpoint = narrow(tmp_path / "c", source, loose)
    out = exported(python, checkpoint, tmp_path / "out", weight_format)
    found = inspect_directory(out)
    assert found.servable and found.layout == "exported"
    head = read_checkpoint(checkpoint)
    if weight_format == "fp32":
        given = drawn(head.text.hidden_size)
        ours = run(build_layer(head, Format("fp32")), *given, steps=[8, 1, 3])
        model = openvino.Core().read_model(out / "openvino_mtp_model.xml")
        theirs = run(model, *given, steps=[8, 1, 3])
        assert np.abs(ours - theirs).max() / np.abs(theirs).max() < 1e-3
    if head.experts:
        assert experts_read(out / "openvino_mtp_model.xml", "CPU") == "chosen"
    built = build_head(checkpoint, out, tmp_path / "built", Format()).path
    assert inspect_directory(convert_head(built, tmp_path / "back", "genai")).servable


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_the_recorded_reference_is_what_transformers_computes(
    tmp_path: Path, python: Path, name: str
) -> None:
    here = Path(__file__).parent
    made = tmp_path / "made.npz"
    command = [str(python), str(here / "reference_layer.py"), str(MODELS / name), str(made)]
    subprocess.run(command, check=True, env=clean_environment())
    recorded, again = (np.load(file) for file in (here.parent / f"fixtures/mtp_reference_{name}.npz", made))
    for key in ("hidden", "embeds", "positions"):
        assert np.array_equal(recorded[key], again[key])
    assert np.abs(recorded["output"] - again["output"]).max() < 1e-5
