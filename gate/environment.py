"""The machine and software that a run was made on, for the record. Nothing here names a person, a host or a home."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from evals.engine.prepare import Prepared


def describe_environment(prepared: Prepared) -> dict[str, Any]:
    """What a reader of the report needs to judge whether the verdict holds for their machine."""
    return {
        "device": prepared.device_name,
        "in_force": prepared.in_force,
        "versions": prepared.versions,
        **_here(),
        **({"tools_left_out": True} if prepared.tools_left_out else {}),
    }


def describe_client(servers: dict[str, str]) -> dict[str, Any]:
    """The machine that asked servers; nothing is known of theirs but the models' names, by arm."""
    return {"device": "servers, not seen", "served_models": servers, **_here()}


def _here() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
    }


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
