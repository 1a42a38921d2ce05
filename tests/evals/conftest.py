"""What the tests of evals share: the bundled sample, decoded for real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def sample_dir(repo: Path) -> Path:
    """The bundled int4 export, or the one that GATE_TEST_MODEL names."""
    return Path(os.environ.get("GATE_TEST_MODEL", repo / "evals" / "sample" / "int4"))


@pytest.fixture(scope="session")
def known_texts() -> tuple[str, str]:
    """A prompt of the prose task and one of the counting task: the sample answers both at length."""
    from tasks.folder import builtin_tasks

    by_name = {task.name: task for task in builtin_tasks()}
    return by_name["prose"].prompts[0].text, by_name["count"].prompts[0].text
