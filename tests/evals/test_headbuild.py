"""The threat: a rebuilt head that runs and drafts something else than the checkpoint's own, by one wrong convention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evals.headbuild import formats
from evals.headbuild.build import build_head
from evals.headbuild.checkpoint import read_checkpoint
from evals.headbuild.convert import convert_head
from evals.headbuild.formats import Format, WeightFormat
from evals.headbuild.layer import build_layer
from evals.headbuild.lm_head import cut_lm_head
from evals.inspection.directory import inspect_directory
from evals.inspection.runtime import experts_read
from evals.model_dir import ModelDirError
from evals.sample import sample_dir
from tests.evals.checkpoints import MODELS, of_tensors, tensors_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


def request(model: Any) -> Any:
    import openvino

    return openvino.Core().compile_model(model, "CPU", EXACT).create_infer_request()


def run(
    layer: Any, hidden: np.ndarray, embeds: np.ndarray, positions: np.ndarray, steps: list[int]
) -> np.ndarray:
    """The layer's output over all positions, asked in steps of these lengths."""
    asked, at, outputs = request(layer), 0, []
    for step in steps:
        part = slice(at, at + step)
        at += step
        feed = {
            "hidden_states": hidden[:, part],
            "inputs_embeds": embeds[:, part],
            "attention_mask": np.ones((1, at), dtype=np.int64),
            "position_ids": positions[:, part],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        outputs.append(asked.infer(feed)[0].copy())
    return np.concatenate(outputs, axis=1)


def drawn(hidden_size: int, length: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    hidden, embeds = (draw.standard_normal((1, length, hidden_size), np.float32) for _ in range(2))
    return hidden, embeds, np.arange(length)[None]


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_hidden_states_are_those_of_transformers_own_layer(name: str) -> None:
    """Recorded by tests/export/reference_layer.py, all positions at once; here in steps, through the layer's states."""
    recorded = np.load(FIXTURES / f"mtp_reference_{name}.npz")
    layer = build_layer(read_checkpoint(MODELS / name), Format("fp32"))
    found = run(layer, recorded["hidden"], recorded["embeds"], recorded["positions"], [17, 1, 3])
    assert np.abs(found - recorded["output"]).max() < 1e-4


def test_the_rebuilt_head_at_int4_is_the_exported_one() -> None:
    """The sample's head was exported from this checkpoint by optimum-intel, so that it drafts the same tokens."""
    import openvino

    checkpoint = read_checkpoint(MODELS / "qwen3_5")
    given = drawn(checkpoint.text.hidden_size)
    ours = run(build_layer(checkpoint, Format("int4")), *given, steps=[8, 1, 3])
    exported = openvino.Core().read_model(sample_dir() / "openvino_mtp_model.xml")
    theirs = run(exported, *given, steps=[8, 1, 3])
    assert np.abs(ours - theirs).max() / np.abs(theirs).max() < 1e-3


def test_padding_is_not_attended_to() -> None:
    """Two prompts of unlike length in one batch: the shorter one, padded on the left, answers as alone."""
    checkpoint = read_checkpoint(MODELS / "qwen3_5")
    asked = request(build_layer(checkpoint, Format("fp32")))
    hidden, embeds, positions = drawn(checkpoint.text.hidden_size, 6)

    def ask(pad: int) -> np.ndarray:
        asked.reset_state()
        mask = np.array([[0] * pad + [1] * (6 - pad)], dtype=np.int64)
        where = np.maximum(positions - pad, 0)
        feed = {
            "hidden_states": hidden,
            "inputs_embeds": embeds,
            "attention_mask": mask,
            "position_ids": where,
        }
        return np.array(asked.infer({**feed, "beam_idx": np.zeros(1, dtype=np.int32)})[0])

    alone = run(build_layer(checkpoint, Format("fp32")), hidden[:, 2:], embeds[:, 2:], positions[:, :4], [4])
    assert np.abs(ask(2)[:, 2:] - alone).max() < 1e-4
    assert np.abs(ask(0)[:, 2:] - alone).max() > 1e-2


def test_experts_stored_one_by_one_or_as_a_stack_are_the_same(tmp_path: Path) -> None:
    stacked = read_checkpoint(MODELS / "qwen3_5_moe")
    tensors = tensors_of("qwen3_5_moe")
    prefix = "mtp.layers.0.mlp.experts."
    both, down = tensors.pop(f"{prefix}gate_up_proj"), tensors.pop(f"{prefix}down_proj")
    for number in range(len(both)):
        gate, up = np.split(both[number], 2)
        for which, values in (("gate", gate), ("up", up), ("down", down[number])):
            tensors[f"{prefix}{number}.{which}_proj.weight"] = values
    single = read_checkpoint(of_tensors(tmp_path / "c", MODELS / "qwen3_5_moe/config.json", tensors, "BF16"))
    assert stacked.fused and not single.fused and single.experts == 8
    given = drawn(stacked.text.hidden_size)
    one, other = (run(build_layer(c, Format("fp32")), *given, steps=[12]) for c in (stacked, single))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("weight_format", ["fp16", "int8", "int4"])
def test_experts_are_gathered_not_all_computed(tmp_path: Path, weight_format: WeightFormat) -> None:
    import openvino

    layer = build_layer(read_checkpoint(MODELS / "qwen3_5_moe"), Format(weight_format))
    openvino.save_model(layer, tmp_path / "layer.xml", compress_to_fp16=False)
    assert experts_read(tmp_path / "layer.xml", "CPU") == "chosen"


@pytest.mark.parametrize(("weight_format", "most"), [("int8", 0.002), ("int4", 0.03)])
def test_blocks_of_rows_are_quantised_as_the_whole(
    monkeypatch: pytest.MonkeyPatch, weight_format: WeightFormat, most: float
) -> None:
    """The blocks' constants lie in memory that outlives them, and in order."""
    import openvino
    from openvino import opset13

    for shape in ((101, 128), (5, 33, 128)):
        values = (np.random.default_rng(0).standard_normal(shape) * 0.05).astype(np.float16)
        found = []
        for block in (1 << 30, 2 * values[0].nbytes):
            monkeypatch.setattr(formats, "BLOCK", block)
            result = opset13.result(Format(weight_format).matrix(values, "w"))
            found.append(request(openvino.Model([result], [])).infer()[0].copy())
        assert np.array_equal(*found)
        assert np.abs(found[0] - values.astype(np.float32)).max() < most


def test_the_lm_head_is_the_targets_own(tmp_path: Path) -> None:
    """Same logits for the same hidden state, to the bit, and quantised as it is in the target."""
    import openvino
    from openvino import opset13

    xml = sample_dir() / "openvino_language_model.xml"
    target = openvino.Core().read_model(xml)
    product = target.get_results()[0].input_value(0).get_node()
    target.add_results([opset13.result(product.input_value(0))])
    ids = np.random.default_rng(0).standard_normal((1, 5, 256)).astype(np.float32)
    feed = {
        "inputs_embeds": ids,
        "attention_mask": np.ones((1, 5), dtype=np.int64),
        "position_ids": np.tile(np.arange(5), (4, 1, 1)),
        "beam_idx": np.zeros(1, dtype=np.int32),
    }
    asked = request(target)
    asked.infer(feed)
    logits, hidden = (asked.get_output_tensor(n).data.copy() for n in range(2))
    assert np.array_equal(request(cut_lm_head(xml)).infer({"hidden_states": hidden})[0], logits)
    out = build_head(MODELS / "qwen3_5", sample_dir(), tmp_path / "out", Format()).path
    parts = {part.role: part for part in inspect_directory(out, layout="split").parts}
    assert [scheme.mode for scheme in parts["lm_head"].schemes] == ["int8_asym"]
    assert [scheme.mode for scheme in parts["head"].schemes] == ["f16"]


@pytest.mark.parametrize("name", ["openvino_mtp_model.xml", "openvino_text_embeddings_model.xml"])
def test_a_graph_without_an_lm_head_is_refused(name: str) -> None:
    with pytest.raises(ModelDirError, match="expected an output named logits"):
        cut_lm_head(sample_dir() / name)


def test_there_and_back_is_the_same_bytes(tmp_path: Path) -> None:
    split = convert_head(sample_dir(), tmp_path / "split", "split")
    assert inspect_directory(split).layout == "split"
    back = convert_head(split, tmp_path / "back", "genai")
    for end in ("xml", "bin"):
        name = f"openvino_mtp_model.{end}"
        assert (back / name).read_bytes() == (sample_dir() / name).read_bytes()
    assert sorted(p.name for p in back.iterdir()) == sorted(p.name for p in sample_dir().iterdir())


def test_a_rebuilt_head_passes_inspection_in_the_other_layout(tmp_path: Path) -> None:
    built = build_head(MODELS / "qwen3_5", sample_dir(), tmp_path / "built", Format())
    assert inspect_directory(convert_head(built.path, tmp_path / "exported", "genai")).servable


def test_a_head_with_an_lm_head_of_its_own_keeps_its_layout(tmp_path: Path) -> None:
    split = convert_head(sample_dir(), tmp_path / "split", "split")
    weights = split / "openvino_mtp_lm_head.bin"
    raw = bytearray(weights.read_bytes())
    raw[1000] ^= 1
    weights.unlink()
    weights.write_bytes(raw)
    with pytest.raises(ModelDirError, match="found other weights"):
        convert_head(split, tmp_path / "out", "genai")
    assert not (tmp_path / "out").exists() and len(list(tmp_path.iterdir())) == 1


def test_a_layer_with_another_interface_keeps_its_layout(tmp_path: Path) -> None:
    split = convert_head(sample_dir(), tmp_path / "split", "split")
    layer = split / "openvino_mtp_layer.xml"
    text = layer.read_text()
    layer.unlink()
    layer.write_text(text.replace("inputs_embeds", "input_embeds"))
    with pytest.raises(ModelDirError, match="another interface"):
        convert_head(split, tmp_path / "out", "genai")


def test_a_head_in_the_layout_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelDirError, match="openvino_mtp_model already"):
        convert_head(sample_dir(), tmp_path / "out", "genai")


def test_a_checkpoint_says_how_large_its_head_is() -> None:
    dense, mixed = (read_checkpoint(MODELS / name) for name in ("qwen3_5", "qwen3_5_moe"))
    assert (dense.bytes, dense.experts) == (3937792, 0)
    assert (mixed.bytes, mixed.experts) == (5073920, 8)
    assert msgspec.json.encode(dense.text)
