"""Model directories for the tests of inspection: the sample with one file changed, and graphs that OpenVINO writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as ops

TARGET, HEAD, EMBEDDINGS = "openvino_language_model", "openvino_mtp_model", "openvino_text_embeddings_model"


def linked(sample: Path, into: Path, *, without: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> Path:
    """The sample's files as links, `without` some and with copies (to be changed) of its `own`."""
    into.mkdir(parents=True)
    for file in sample.iterdir():
        if file.name in own:
            shutil.copyfile(file, into / file.name)
        elif file.name not in without:
            (into / file.name).symlink_to(file.resolve())
    return into


def edited(sample: Path, into: Path, name: str, *changes: tuple[str, str]) -> Path:
    """The sample with text replaced in one file; each text must be there."""
    linked(sample, into, own=(name,))
    text = (into / name).read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (into / name).write_text(text)
    return into


def save(into: Path, stem: str, results: list[ov.Output], inputs: list[ov.Node], names: list[str]) -> None:
    """Write a graph of OpenVINO's own making over whatever is there."""
    made = [ops.result(result) for result in results]
    for result, name in zip(made, names, strict=True):
        result.output(0).set_names({name})
    for suffix in ("xml", "bin"):
        (into / f"{stem}.{suffix}").unlink(missing_ok=True)
    ov.save_model(ov.Model(made, inputs, stem), into / f"{stem}.xml", compress_to_fp16=False)


def parameter(name: str, shape: list[int], kind: type = np.float32) -> ov.Node:
    node = ops.parameter(shape, kind, name=name)
    node.output(0).set_names({name})
    return node


def weight(rng: np.random.Generator, *shape: int) -> ov.Node:
    return ops.constant(rng.standard_normal(shape).astype(np.float32))


def save_embeddings(into: Path, table: np.ndarray) -> None:
    ids = parameter("input", [-1, -1], np.int64)
    looked_up = ops.gather(ops.constant(table.astype(np.float32)), ids, ops.constant(np.int32(0)))
    save(into, EMBEDDINGS, [looked_up.output(0)], [ids], ["inputs_embeds"])


def save_lm_head(into: Path, hidden: int, tokens: int) -> None:
    states = parameter("hidden_states", [-1, -1, hidden])
    logits = ops.matmul(states, weight(np.random.default_rng(1), tokens, hidden), False, True)
    save(into, "openvino_mtp_lm_head", [logits.output(0)], [states], ["logits"])


def save_expert_head(into: Path, hidden: int, *, experts: int, chosen: int, extra_op: bool) -> None:
    """A head whose layer is a mixture of experts as optimum-intel exports it: every expert computed over tiled rows.

    extra_op: one operation after the Tile, which keeps the CPU plug-in from gathering (shared/notes/openvino.md).
    """
    rng, width = np.random.default_rng(2), 32
    states, embeds = (parameter(name, [-1, -1, hidden]) for name in ("hidden_states", "inputs_embeds"))
    joined = ops.concat([embeds, states], 2)
    rows = ops.matmul(joined, weight(rng, hidden, 2 * hidden), False, True)
    flat = ops.reshape(rows, np.array([-1, hidden]), False)
    odds = ops.softmax(ops.matmul(flat, weight(rng, experts, hidden), False, True), 1)
    top = ops.topk(odds, ops.constant(np.int64(chosen)), 1, "max", "value")
    shares = ops.divide(top.output(0), ops.reduce_sum(top.output(0), np.array([1]), True))
    none = ops.broadcast(ops.constant(np.float32(0)), ops.shape_of(odds))
    spread = ops.scatter_elements_update(none, top.output(1), shares, ops.constant(np.int64(1)))
    by_expert = ops.reshape(ops.transpose(spread, np.array([1, 0])), np.array([experts, 1, -1]), False)
    tiled = ops.tile(flat, np.array([experts, 1]))
    if extra_op:
        tiled = ops.multiply(tiled, ops.constant(np.float32(1.5)))
    tiled = ops.reshape(tiled, np.array([experts, -1, hidden]), False)
    gate = ops.gelu(ops.matmul(tiled, weight(rng, experts, width, hidden), False, True), "erf")
    up = ops.matmul(tiled, weight(rng, experts, width, hidden), False, True)
    down = ops.matmul(ops.multiply(gate, up), weight(rng, experts, hidden, width), False, True)
    each = ops.reshape(down, np.array([experts, 1, -1, hidden]), False)
    weighed = ops.multiply(each, ops.unsqueeze(by_expert, ops.constant(np.int64(-1))))
    result = ops.reshape(ops.reduce_sum(weighed, np.array([0]), False), ops.shape_of(rows), False)
    save(into, HEAD, [result.output(0)], [states, embeds], ["last_hidden_state"])


def save_small_model(into: Path, sample: Path) -> None:
    """A whole directory of small graphs, compressed as nncf does it, with the sample's tokenizer and configs."""
    tokens, hidden = _shape(sample)
    graphs = [TARGET, HEAD, EMBEDDINGS, "openvino_vision"]
    into.mkdir(parents=True)
    for file in sample.iterdir():
        if not file.name.startswith(tuple(graphs)):
            shutil.copyfile(file, into / file.name)
    rng = np.random.default_rng(3)
    embeds = parameter("inputs_embeds", [-1, -1, hidden])
    normed = ops.multiply(_normed(embeds), ops.constant(np.ones((1, 1, hidden), dtype=np.float32)))
    body = ops.matmul(normed, compressed(rng, hidden, hidden), False, True)
    logits = ops.matmul(body, compressed(rng, tokens, hidden), False, True)
    save(into, TARGET, [logits.output(0)], [embeds], ["logits"])
    states, embeds = (parameter(name, [-1, -1, hidden]) for name in ("hidden_states", "inputs_embeds"))
    joined = ops.matmul(ops.concat([embeds, states], 2), compressed(rng, hidden, 2 * hidden), False, True)
    scaled = ops.multiply(_normed(joined), ops.constant(np.full((1, 1, hidden), 1.1, dtype=np.float32)))
    save(into, HEAD, [scaled.output(0)], [states, embeds], ["last_hidden_state"])
    save_embeddings(into, rng.standard_normal((tokens, hidden)))


def compressed(rng: np.random.Generator, rows: int, columns: int, group: int = 32) -> ov.Node:
    """A u4 weight with scale and zero point per group."""
    packed = rng.integers(0, 16, (rows, columns // group, group)).astype(np.uint8)
    value = ops.convert(ops.constant(packed, dtype=ov.Type.u4), "f16")
    zero = ops.convert(
        ops.constant(np.full((rows, columns // group, 1), 7, np.uint8), dtype=ov.Type.u4), "f16"
    )
    scale = ops.constant(rng.uniform(0.01, 0.1, (rows, columns // group, 1)).astype(np.float16))
    scaled = ops.multiply(ops.subtract(value, zero), scale)
    return ops.convert(ops.reshape(scaled, np.array([rows, columns]), False), "f32")


def _normed(value: ov.Node) -> ov.Node:
    mean = ops.reduce_mean(ops.power(value, np.float32(2)), np.array([-1]), True)
    return ops.multiply(value, ops.divide(np.float32(1), ops.sqrt(ops.add(mean, np.float32(1e-6)))))


def _shape(sample: Path) -> tuple[int, int]:
    config = json.loads((sample / "config.json").read_text())["text_config"]
    return config["vocab_size"], config["hidden_size"]


def save_text_model(into: Path, tokens: int, hidden: int, *, tied: bool) -> None:
    """A text-only target (openvino_model): ids in, logits out, its embeddings inside."""
    rng = np.random.default_rng(4)
    table = weight(rng, tokens, hidden)
    ids = parameter("input_ids", [-1, -1], np.int64)
    states = ops.relu(ops.gather(table, ids, ops.constant(np.int32(0))))
    logits = ops.matmul(states, table if tied else weight(rng, tokens, hidden), False, True)
    save(into, "openvino_model", [logits.output(0)], [ids], ["logits"])
