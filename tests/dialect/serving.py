"""Real servers of transformers' `serve` on loopback, of the version that is pinned here and of the exporter's own.

The exporter's environment has torch; what serving needs beside it is laid into a folder of its own in the same cache,
so that one torch serves for both. GATE_EXPORTER_PYTHON names an interpreter that has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from evals.export.environment import clean_environment, environment_dir, exporter_python
from tests.evals.checkpoints import MODELS, read, write
from tests.fixtures.served import free_port, is_well

HERE = Path(__file__).parent
PINS = HERE / "constraints.txt"
NEWER = ("transformers", "tokenizers", "huggingface_hub")
"""Packages that the exporter's environment has in an older version, with which `serve` speaks otherwise."""


def dialect_python() -> Path:
    named = os.environ.get("GATE_EXPORTER_PYTHON")
    return exporter_python(Path(named) if named else None, print)


def packages(python: Path, newer: bool = True) -> Path:
    """A folder with what serving needs beside the exporter's environment; made once. newer: transformers anew, too."""
    pins = [line for line in PINS.read_text().splitlines() if line and not line.startswith("#")]
    wanted = [pin for pin in pins if newer or pin.partition("==")[0] not in NEWER]
    key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
    folder = environment_dir().parent / f"serving-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "ready").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            install = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--no-compile",
                "--target",
                str(folder),
            ]
            subprocess.run([*install, *wanted], check=True, env=clean_environment())
            (folder / "ready").touch()
    return folder


def text_checkpoint(to: Path, **generation: Any) -> Path:
    """The sample's checkpoint as a text model: without the tower of pictures, for which serving wants torchvision.
    generation: further entries of generation_config.json."""
    source = MODELS / "qwen3_5"
    to.mkdir()
    for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, to / name)
    config = json.loads((source / "config.json").read_text())["text_config"]
    (to / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3_5ForCausalLM"]}))
    said = json.loads((source / "generation_config.json").read_text())
    (to / "generation_config.json").write_text(json.dumps({**said, **generation}))
    header, data = read(source / "model.safetensors")
    text: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    kept = b""
    for name, entry in header.items():
        if name == "__metadata__" or name.startswith(("mtp.", "model.visual.")):
            continue
        part = data[slice(*entry["data_offsets"])]
        place = [len(kept), len(kept) + len(part)]
        text[name.replace("model.language_model.", "model.")] = {**entry, "data_offsets": place}
        kept += part
    write(to / "model.safetensors", text, kept)
    return to


@contextlib.contextmanager
def transformers_servers(python: Path, site: Path, *models: Path) -> Iterator[list[int]]:
    """The ports of servers of these models, up and well; ended afterwards."""
    ports = [free_port() for _ in models]
    home = models[0].parent / "home"
    (home / "hub").mkdir(parents=True, exist_ok=True)  # the earlier version lists models from there, or fails
    environment = clean_environment() | {
        "PYTHONPATH": str(site),
        "HF_HOME": str(home),
        "OMP_NUM_THREADS": "1",
    }
    started = []
    try:
        for port, model in zip(ports, models, strict=True):
            command = [str(python), str(HERE / "transformers_server.py"), str(port), str(model)]
            log = (model.parent / f"{model.name}.log").open("wb")
            started.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
                )
            )
            log.close()
        end = time.monotonic() + 600
        for port, model, process in zip(ports, models, started, strict=True):
            while not is_well(port):
                told = (model.parent / f"{model.name}.log").read_text()[-2000:]
                assert process.poll() is None and time.monotonic() < end, f"no server: {told}"
                time.sleep(0.2)
        yield ports
    finally:
        for process in started:
            process.kill()
            process.wait()
