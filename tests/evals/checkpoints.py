"""Checkpoints made for tests: the sample's, changed; and one of any size, of noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MODELS = Path(__file__).parents[1] / "models"
Entry = dict[str, Any]


def read(file: Path) -> tuple[dict[str, Entry], bytes]:
    """A safetensors file's header and data."""
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write(file: Path, header: dict[str, Entry], data: bytes) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def changed(
    to: Path,
    source: str = "qwen3_5",
    config: Callable[[Entry], None] | None = None,
    header: Callable[[dict[str, Entry]], None] | None = None,
) -> Path:
    """The sample's checkpoint with its text config or its tensors' header edited in place."""
    to.mkdir(parents=True)
    said = json.loads((MODELS / source / "config.json").read_text())
    if config:
        config(said["text_config"])
    (to / "config.json").write_text(json.dumps(said))
    found, data = read(MODELS / source / "model.safetensors")
    if header:
        header(found)
    write(to / "model.safetensors", found, data)
    return to


def tensors_of(source: str) -> dict[str, np.ndarray]:
    """The head's tensors by name; the sample's are stored as float32."""
    header, data = read(MODELS / source / "model.safetensors")
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
        for name, entry in header.items()
        if name.startswith("mtp.")
    }


def of_tensors(to: Path, config: Path, tensors: dict[str, np.ndarray], dtype: str = "F32") -> Path:
    """A checkpoint of these tensors alone, with another's config."""
    to.mkdir(parents=True)
    (to / "config.json").write_bytes(config.read_bytes())
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.astype("<f4")
        part = (raw.view("<u4") >> 16).astype("<u2").tobytes() if dtype == "BF16" else raw.tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(part)],
        }
        data += part
    write(to / "model.safetensors", header, data)
    return to


def noise(to: Path, shapes: dict[str, tuple[int, ...]], text: Entry) -> Path:
    """A checkpoint in bf16 of these shapes, values of about 0.02, written in pieces."""
    to.mkdir(parents=True)
    (to / "config.json").write_text(json.dumps({"text_config": text}))
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[f"mtp.{name}"] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    draw = np.random.default_rng(0)
    with (to / "model.safetensors").open("wb") as file:
        said = json.dumps(header).encode()
        file.write(len(said).to_bytes(8, "little") + said)
        while at > 0:
            values = (draw.standard_normal(min(at // 2, 1 << 22), dtype=np.float32) * 0.02).view(
                np.uint32
            ) >> 16
            file.write(values.astype("<u2").tobytes())
            at -= 2 * len(values)
    return to
