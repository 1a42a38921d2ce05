"""The threat: a user without the extra is told of a fault of the tool in place of what to install."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from gate.cli.sandbox import command
from sandbox.contract import SandboxUnavailable


def test_without_docker_py_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sandbox.docker_backend", raising=False)
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(SandboxUnavailable, match=r"mtp-gate\[docker\]"):
        CliRunner().invoke(command, ["build"], catch_exceptions=False)
