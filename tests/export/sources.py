"""Checkpoints in 16 bits, as published ones are, made of the sample's; and commands of the gate run on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from click.testing import CliRunner

from evals.headbuild.formats import WeightFormat
from gate.cli import gate
from tests.evals.checkpoints import MODELS, read, write

Width = Literal["BF16", "F16"]


class Source(msgspec.Struct, frozen=True):
    """A checkpoint to export: one of tests/models in 16 bits throughout. loose: the head's experts one by one."""

    model: str
    width: Width
    loose: bool = False

    def __str__(self) -> str:
        return f"{self.model}-{self.width.lower()}{'-loose' if self.loose else ''}"


DENSE, DENSE_F16 = Source("qwen3_5", "BF16"), Source("qwen3_5", "F16")
MIXED, MIXED_F16 = Source("qwen3_5_moe", "BF16", loose=True), Source("qwen3_5_moe", "F16")

Exported = Callable[[Source, WeightFormat], Path]
Checkpoints = Callable[[Source], Path]


def command(*arguments: object, codes: Collection[int] = (0,)) -> str:
    """What a command of the gate prints, run in this process; it must end with one of these codes."""
    told = CliRunner().invoke(gate, [*map(str, arguments)], standalone_mode=False)
    assert told.return_value in codes, (told.output, told.exception)
    return told.output


def narrow(to: Path, source: Source) -> Path:
    to.mkdir()
    for file in (MODELS / source.model).iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            (to / file.name).symlink_to(file)
    config: dict[str, Any] = json.loads((MODELS / source.model / "config.json").read_text())
    config["dtype"] = config["text_config"]["dtype"] = {"BF16": "bfloat16", "F16": "float16"}[source.width]
    (to / "config.json").write_text(json.dumps(config))
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, values in _tensors(source):
        part = _bits(values, source.width)
        header[name] = {
            "dtype": source.width,
            "shape": list(values.shape),
            "data_offsets": [at, at + len(part)],
        }
        at += len(part)
        data.append(part)
    write(to / "model.safetensors", header, b"".join(data))
    return to


def _tensors(source: Source) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor in float32; the head's experts apart where they are loose."""
    header, data = read(MODELS / source.model / "model.safetensors")
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*entry["data_offsets"])]
        if entry["dtype"] == "F32":
            values = np.frombuffer(raw, "<f4").reshape(entry["shape"])
        else:
            assert entry["dtype"] == "BF16"
            values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").reshape(entry["shape"])
        stack = name.startswith("mtp.") and source.loose and name.rpartition(".")[2]
        if stack == "gate_up_proj":
            for number, both in enumerate(values):
                for which, half in zip(("gate", "up"), np.split(both, 2), strict=True):
                    yield name.replace(stack, f"{number}.{which}_proj.weight"), half
        elif stack == "down_proj":
            for number, down in enumerate(values):
                yield name.replace(stack, f"{number}.down_proj.weight"), down
        else:
            yield name, values


def _bits(values: np.ndarray, width: Width) -> bytes:
    if width == "F16":
        return values.astype("<f2").tobytes()
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
