"""Heads that users have really met, made from a good one: weights permuted (another target's), half of the weights
loaded (sglang#35797), norms without their shift of one (omlx#1507). A head is a directory that links everything else.

The constants are changed where they lie in the .bin file, so that packed int4 weights stay packed int4 weights.
"""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np

HEAD = "openvino_mtp_model"
LARGE = 1000
"""Bytes from which a constant is a weight and not a scale of one or a shape."""

FLOATS = {"f32": np.float32, "f16": np.float16}

Change = Callable[[np.ndarray, str, tuple[int, ...], int, np.random.Generator], np.ndarray | None]


def permuted(
    data: np.ndarray, kind: str, shape: tuple[int, ...], index: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Every weight in another place."""
    return rng.permutation(data) if data.size >= LARGE and "i64" not in kind else None


def half_loaded(
    data: np.ndarray, kind: str, shape: tuple[int, ...], index: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Every second weight as a loader leaves it that doesn't know its name: not the checkpoint's."""
    return permuted(data, kind, shape, index, rng) if index % 2 else None


def unshifted_norms(
    data: np.ndarray, kind: str, shape: tuple[int, ...], index: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Norms as the checkpoint stores them (w, to be used as 1 + w), taken as they are."""
    if kind not in FLOATS or max(shape, default=1) < 32 or int(np.prod(shape)) != max(shape, default=1):
        return None
    shifted: np.ndarray = data.view(FLOATS[kind]) - FLOATS[kind](1)
    return shifted.view(np.uint8)


FAULTS: dict[str, Change] = {
    "permuted": permuted,
    "half_loaded": half_loaded,
    "unshifted_norms": unshifted_norms,
}


def make(model: Path, into: Path, fault: str, seed: int = 0) -> Path:
    """A directory at `into` with the model's files linked and the head changed; returns `into`."""
    into.mkdir(parents=True)
    for file in model.iterdir():
        if not file.name.startswith(HEAD):
            (into / file.name).symlink_to(file.resolve())
    shutil.copyfile(model / f"{HEAD}.xml", into / f"{HEAD}.xml")
    weights = np.fromfile(model / f"{HEAD}.bin", dtype=np.uint8)
    rng, changed = np.random.default_rng(seed), 0
    for index, node in enumerate(
        ET.parse(model / f"{HEAD}.xml").getroot().iterfind(".//layer[@type='Const']/data")
    ):
        start, size = int(node.attrib["offset"]), int(node.attrib["size"])
        shape = tuple(int(n) for n in node.attrib["shape"].split(",") if n.strip())
        new = FAULTS[fault](
            weights[start : start + size].copy(), node.attrib["element_type"], shape, index, rng
        )
        if new is not None:
            weights[start : start + size] = new
            changed += 1
    if not changed:
        raise ValueError(f"expected {model / HEAD}.xml to have constants to change for {fault}, found none")
    weights.tofile(into / f"{HEAD}.bin")
    return into
