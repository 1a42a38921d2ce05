"""The threat: a checkpoint or base that can't give this head is built from all the same, or a half output is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evals.model_dir import ModelDirError
from evals.sample import sample_dir
from gate.cli import gate
from gate.cli.errors import is_user_error
from tests.evals.checkpoints import MODELS, Entry, changed, read, write

Q_PROJ = "mtp.layers.0.self_attn.q_proj.weight"


def refused(*arguments: object) -> str:
    """The sentence with which a command ends, as a user's error (exit code 2)."""
    result = CliRunner().invoke(gate, ["head", *map(str, arguments)], standalone_mode=False)
    assert isinstance(result.exception, ModelDirError), (result.output, result.exception)
    assert is_user_error(result.exception)
    return str(result.exception)


def build(checkpoint: Path, out: Path, base: Path | None = None) -> str:
    said = refused("build", "--checkpoint", checkpoint, "--base", base or sample_dir(), "--out", out)
    assert not out.exists() and not list(out.parent.glob(".*partial*"))
    return said


def settings(**values: Any) -> Callable[[Entry], None]:
    return lambda text: text.update(values)


CONFIGS = [
    ({"mtp_num_hidden_layers": 0}, "found 0: no head is declared"),
    ({"mtp_num_hidden_layers": 2}, "found 2: deeper heads"),
    ({"mtp_num_hidden_layers": None}, "found nothing"),
    ({"mtp_num_hidden_layers": "one"}, "expected a model's configuration"),
    ({"hidden_size": 128}, "of shape"),
    ({"hidden_size": 10**9}, "expected a model's configuration"),
    ({"num_attention_heads": 0}, "expected a model's configuration"),
    ({"num_key_value_heads": 3}, "can't be laid out"),
    ({"hidden_act": "gelu"}, "hidden_act = 'silu', found 'gelu'"),
    ({"attention_bias": True}, "attention_bias"),
    ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
    ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
    (
        {"num_experts": 8, "num_experts_per_tok": 2},
        "expected tensor mtp.layers.0.mlp.gate.weight, found none",
    ),
]


@pytest.mark.parametrize(("said", "words"), CONFIGS, ids=[words for _, words in CONFIGS])
def test_configs(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    assert words in build(changed(tmp_path / "c", config=settings(**said)), tmp_path / "o" / "out")


def _no_head(header: dict[str, Entry]) -> None:
    for name in [name for name in header if name.startswith("mtp.")]:
        del header[name]


def _renamed(header: dict[str, Entry]) -> None:
    header["mtp.layers.0.self_attn.query.weight"] = header.pop(Q_PROJ)


def _second_layer(header: dict[str, Entry]) -> None:
    header["mtp.layers.1.self_attn.q_proj.weight"] = header[Q_PROJ]


def _turned(header: dict[str, Entry]) -> None:
    header[Q_PROJ]["shape"].reverse()


def _past_the_end(header: dict[str, Entry]) -> None:
    header[Q_PROJ]["data_offsets"] = [1 << 40, (1 << 40) + 524288]


def _backwards(header: dict[str, Entry]) -> None:
    header[Q_PROJ]["data_offsets"].reverse()


def _short(header: dict[str, Entry]) -> None:
    header[Q_PROJ]["data_offsets"][1] -= 4


def _quantised(header: dict[str, Entry]) -> None:
    header[Q_PROJ] |= {"dtype": "F8_E4M3", "data_offsets": [0, 512 * 256]}


def _negative(header: dict[str, Entry]) -> None:
    header[Q_PROJ]["shape"] = [-512, -256]


HEADERS = [
    (_no_head, "found none: this checkpoint was saved without its head"),
    (_renamed, f"expected tensor {Q_PROJ}, found none"),
    (_second_layer, "mtp.layers.1.self_attn.q_proj.weight (1 in all) isn't part"),
    (_turned, f"expected {Q_PROJ} of shape [512, 256]"),
    (_past_the_end, "a cut download"),
    (_backwards, "expected a safetensors file"),
    (_short, "expected a safetensors file"),
    (_quantised, "Quantised checkpoints aren't rebuilt"),
    (_negative, "expected a safetensors file"),
]


@pytest.mark.parametrize(("edit", "words"), HEADERS, ids=[edit.__name__ for edit, _ in HEADERS])
def test_tensors(tmp_path: Path, edit: Callable[[dict[str, Entry]], None], words: str) -> None:
    assert words in build(changed(tmp_path / "c", header=edit), tmp_path / "out")


@pytest.mark.parametrize(
    "raw", [b"", b"\xff" * 64, b"\x08" + bytes(7) + b"[1,2,3] ", b"version https://git-lfs"]
)
def test_files_that_are_no_safetensors(tmp_path: Path, raw: bytes) -> None:
    checkpoint = changed(tmp_path / "c")
    (checkpoint / "model.safetensors").write_bytes(raw)
    assert "expected a safetensors file" in build(checkpoint, tmp_path / "out")


def test_weights_that_are_not_finite_or_too_large_for_16_bits(tmp_path: Path) -> None:
    for value, words in (
        (b"\x00\x00\xc0\x7f", "aren't finite"),
        (b"\x00\x00\x80\x4f", "beyond float16's 65504"),
    ):
        checkpoint = changed(tmp_path / f"c{value.hex()}")
        header, data = read(checkpoint / "model.safetensors")
        at = header[Q_PROJ]["data_offsets"][0]
        write(checkpoint / "model.safetensors", header, data[:at] + value + data[at + 4 :])
        assert words in build(checkpoint, tmp_path / "out")


def test_directories_that_are_not_there_or_something_else(tmp_path: Path) -> None:
    assert "found nothing there" in build(tmp_path / "no", tmp_path / "out")
    assert "found no config.json" in build(tmp_path, tmp_path / "o" / "out")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((MODELS / "qwen3_5/config.json").read_text())
    assert "found neither" in build(bare, tmp_path / "out")
    assert "expected a model directory" in build(MODELS / "qwen3_5", tmp_path / "out", tmp_path / "no")
    assert "isn't exported yet" in build(MODELS / "qwen3_5", tmp_path / "out", MODELS / "qwen3_5")
    assert "hidden size 192" in build(MODELS / "qwen3_5_moe", tmp_path / "out")


def test_an_index_that_names_files_elsewhere_or_not_there(tmp_path: Path) -> None:
    checkpoint = changed(tmp_path / "c")
    for name, words in (
        ("../c/model.safetensors", "expected names of files in its own directory"),
        ("m" * 300, "expected names of files in its own directory"),
        ("m\0", "expected names of files in its own directory"),
        ("", "expected names of files in its own directory"),
        ("two.safetensors", "found none"),
    ):
        index = {"weight_map": {"mtp.fc.weight": name}}
        (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
        assert words in build(checkpoint, tmp_path / "out")


def test_a_place_that_is_taken_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "full"):
        for command in (
            ("build", "--checkpoint", MODELS / "qwen3_5", "--base", sample_dir()),
            ("convert", "--model", sample_dir(), "--to", "split"),
        ):
            assert "expected nothing there yet" in refused(*command, "--out", out)
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "file").read_text() == "mine"


def test_what_is_written_is_said_and_complete(tmp_path: Path) -> None:
    built, converted = tmp_path / "built", tmp_path / "converted"
    told = CliRunner().invoke(
        gate,
        [
            "head",
            "build",
            "--checkpoint",
            str(MODELS / "qwen3_5"),
            "--base",
            str(sample_dir()),
            "--out",
            str(built),
        ],
        standalone_mode=False,
    )
    assert told.return_value == 0 and "layer 2.0 MB (fp16)" in told.output
    told = CliRunner().invoke(
        gate,
        ["head", "convert", "--model", str(built), "--to", "exported", "--out", str(converted)],
        standalone_mode=False,
    )
    assert told.return_value == 0 and "exported layout" in told.output
    shown = CliRunner().invoke(gate, ["inspect", "--model", str(converted)], standalone_mode=False)
    assert shown.return_value == 0
