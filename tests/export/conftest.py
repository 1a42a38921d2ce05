"""What the tests of real exports share: the exporter, and one export of each checkpoint and format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evals.export.environment import exporter_python
from evals.headbuild.formats import WeightFormat
from tests.export.sources import Checkpoints, Exported, Source, command, narrow


@pytest.fixture(scope="session")
def python() -> Path:
    named = os.environ.get("GATE_EXPORTER_PYTHON")
    return exporter_python(Path(named) if named else None, print)


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    root = tmp_path_factory.mktemp("checkpoints")

    def take(source: Source) -> Path:
        place = root / str(source)
        return place if place.exists() else narrow(place, source)

    return take


@pytest.fixture(scope="session")
def exported(python: Path, checkpoint_of: Checkpoints, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """`gate export`, run once for each checkpoint and format that a test asks for."""
    root = tmp_path_factory.mktemp("exports")

    def take(source: Source, weight_format: WeightFormat) -> Path:
        place = root / f"{source}-{weight_format}"
        if not place.exists():
            told = command(
                "export", "--checkpoint", checkpoint_of(source), "--out", place, "--weight-format",
                weight_format, "--exporter-python", python,
            )  # fmt: skip
            assert "openvino_mtp_model" in told
        return place

    return take
