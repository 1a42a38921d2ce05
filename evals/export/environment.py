"""The exporter's Python: a virtual environment in the cache, made on first use; or one that the user names."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from evals.engine.child import clean
from evals.model_dir import ModelDirError

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
"""What the environment holds. Versions only; where packages come from, pip's own configuration says."""

_ERROR = re.compile(r"(ERROR:|[\w.]*(Error|Exception)\b)")

ROOM = 4 << 30
"""Bytes that must be free where the environment is made: 1.6 GB for it with torch's CPU build, and pip's downloads."""

READY = "ready"
_PROBE = "import importlib.metadata as m; print(m.version('optimum-intel'), m.version('openvino'), m.version('torch'))"


class ExporterMissing(ModelDirError):
    """There is no environment with the exporter, and none could be made."""


def exporter_python(given: Path | None, say: Callable[[str], None]) -> Path:
    """The interpreter that has optimum-intel: `given`, or that of the cached environment, which is made if need be.

    say: gets a sentence when something takes minutes. Raises ExporterMissing.
    """
    if given is not None:
        _probe(given)
        return given
    home = environment_dir()
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{home}.lock"):
            if not (home / READY).is_file():
                _check_room(home)
                say(f"making the exporter's environment in {home} (once; torch and optimum-intel, minutes)")
                _make(home)
    except OSError as error:
        raise ExporterMissing(
            f"{home}: cannot be made ({error.strerror or error}). Set XDG_CACHE_HOME to a place with room for 2 GB, "
            "or name an interpreter that has optimum-intel with --exporter-python."
        ) from error
    return home / "bin" / "python"


def environment_dir() -> Path:
    """Where the environment of these versions and this Python lies."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256(CONSTRAINTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache / "mtp-gate" / f"exporter-{key}"


def clean_environment() -> dict[str, str]:
    """The variables that the exporter gets: none of another Python's, no hub, no usage statistics, no card."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "NNCF_CI": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
    }


def last_words(output: bytes) -> str:
    """The error that a Python program ended with: its last line that names one, or its last."""
    lines = [line.strip() for line in output[-16000:].decode("utf-8", "replace").splitlines() if line.strip()]
    named = [line for line in lines if _ERROR.match(line)]
    return clean((named or lines or [""])[-1])[:400]


def _make(home: Path) -> None:
    """torch goes in first and alone: resolved with the rest, a build with CUDA of several GB may come in.

    The rest goes in as listed and no more: optimum-intel would bring torchvision, which must be of torch's own build or
    breaks transformers' import, and which an export doesn't need.
    """
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(home)])
    install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS)]
    pins = [line for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    _run([*install, *(pin for pin in pins if pin.startswith("torch=="))])
    _run([*install, "--no-deps", *pins])
    _probe(home / "bin" / "python")
    (home / READY).touch()


def _check_room(home: Path) -> None:
    """pip's own sentence comes after minutes, and doesn't say where it ran out."""
    free = shutil.disk_usage(home.parent).free
    if free < ROOM:
        raise ExporterMissing(
            f"{home.parent}: expected {ROOM / 1e9:.1f} GB free for the exporter's environment, found {free / 1e9:.1f} "
            "GB. Make room, set XDG_CACHE_HOME to a place that has it, or name an interpreter that has optimum-intel "
            "with --exporter-python."
        )


def _run(command: list[str]) -> None:
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean_environment(), check=False
    )
    if ended.returncode != 0:
        last = last_words(ended.stdout)
        raise ExporterMissing(
            f"no environment for the exporter can be made: {' '.join(command[1:4])} ended with {ended.returncode} "
            f"({last}). Check the network and pip, or name an interpreter that has optimum-intel with "
            "--exporter-python."
        )


def _probe(python: Path) -> None:
    try:
        ended = subprocess.run(
            [str(python), "-c", _PROBE],
            capture_output=True,
            env=clean_environment(),
            timeout=300,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExporterMissing(
            f"{python}: expected a Python interpreter, found one that can't be run ({error})."
        ) from error
    if ended.returncode != 0:
        last = last_words(ended.stderr)
        raise ExporterMissing(
            f"{python}: expected an interpreter with optimum-intel, openvino and torch, found: {last}. Install what "
            f"{CONSTRAINTS} lists, or leave --exporter-python out."
        )
