"""What the tests of evals share: the bundled sample, decoded for real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def sample_dir(repo: Path) -> Path:
    """The bundled int4 export, or the one that GATE_TEST_MODEL names."""
    return Path(os.environ.get("GATE_TEST_MODEL", repo / "evals" / "sample" / "int4"))
