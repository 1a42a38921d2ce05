"""The threat: a graph made to exhaust the reader, to reach other files, or to name bytes that aren't there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from evals.inspection import graph as graph_module
from evals.inspection.graph import read_graph
from evals.inspection.values import read_row
from evals.inspection.weights import find_weights, schemes
from evals.model_dir import MAX_XML, ModelDirError
from tests.evals.inspection_dirs import parameter, save

CONST = (
    '<layer id="{id}" name="c" type="Const">'
    '<data element_type="{kind}" shape="{shape}" offset="{offset}" size="{size}"/></layer>'
)
GOOD = CONST.format(id=0, kind="f32", shape="2,2", offset=0, size=16)


def net(layers: str = GOOD, edges: str = "", info: str = "", before: str = "") -> str:
    inside = f"<layers>{layers}</layers><edges>{edges}</edges><rt_info>{info}</rt_info>"
    return f"<?xml version='1.0'?>{before}<net>{inside}</net>"


def refusal(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "openvino_model.xml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelDirError) as caught:
        read_graph(file)
    assert str(file) in str(caught.value) and "export it again" in str(caught.value)
    return str(caught.value)


def test_a_sound_graph_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(net())
    assert read_graph(tmp_path / "m.xml").needed == 16


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (net(before="<!DOCTYPE net [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]>"), "document type"),
        (net(before="<!DOCTYPE net SYSTEM 'file:///etc/passwd'>"), "document type"),
        (net(info='<x value="&undefined;"/>'), "undefined entity"),
        ("<html><body/></html>", "<html>"),
        ("", "no element found"),
        (net()[:-9], "unclosed token"),
        (b"\x80\x02binary", "not well-formed"),
        (net(layers=""), "no layer"),
        (net(layers=GOOD + GOOD), "two layers with id 0"),
        (net(edges='<edge from-layer="0" to-layer="7" to-port="0"/>'), "layer that isn't there"),
        (net(edges='<edge from-layer="0" to-layer="0" to-port="x"/>'), "ValueError"),
        (net(edges='<edge from-layer="0"/>'), "KeyError"),
        (net(layers='<layer name="a"/>'), "KeyError"),
        (net(layers=CONST.format(id=0, kind="f32", shape="2,2", offset=-4, size=16)), "offset -4"),
        (net(layers=CONST.format(id=0, kind="f32", shape="2,2", offset=0, size=12)), "12 bytes"),
        (net(layers=CONST.format(id=0, kind="u4", shape="3", offset=0, size=1)), "1 bytes"),
        (net(layers=CONST.format(id=0, kind="q7", shape="2,2", offset=0, size=4)), "isn't one of OpenVINO's"),
        (net(layers=CONST.format(id=0, kind="f32", shape="2,?", offset=0, size=12)), "ValueError"),
        (net(layers=CONST.format(id=0, kind="f32", shape="9" * 30, offset=0, size=12)), "shape"),
        (net(layers=CONST.format(id=0, kind="f32", shape="9" * 5000, offset=0, size=12)), "ValueError"),
        (net(layers=CONST.format(id=0, kind="f32", shape=",".join("1" * 40), offset=0, size=4)), "offset 0"),
        (net(info="<a>" * 100 + "</a>" * 100), "nested over"),
        (net(info='<a value="1"/>' * 5000), None),
        (net(info="".join(f'<a{i} value="1"/>' for i in range(5000))), "runtime information"),
        (net(layers=f'<layer id="0" name="{"a" * (6 << 20)}" type="Const"/>'), "over"),
        (net(layers="<!--" + "a" * (6 << 20) + "-->" + GOOD), "over"),
    ],
)  # fmt: skip
def test_hostile_graphs_are_refused(text: str | bytes, words: str | None, tmp_path: Path) -> None:
    if words is None:  # the same entry again and again takes the room of one
        (tmp_path / "m.xml").write_text(str(text))
        assert len(read_graph(tmp_path / "m.xml").info) == 1
        return
    assert words in refusal(tmp_path, text)


def test_a_declared_codec_is_not_looked_up(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(net().replace("'1.0'", "'1.0' encoding='rot13'"))
    assert read_graph(tmp_path / "m.xml").needed == 16


def test_a_graph_larger_than_any_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "m.xml"
    with file.open("wb") as stream:
        stream.truncate(MAX_XML + 1)
    with pytest.raises(ModelDirError, match="at most"):
        read_graph(file)


def test_layers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "MAX_LAYERS", 3)
    many = "".join(CONST.format(id=i, kind="f32", shape="1", offset=0, size=4) for i in range(4))
    assert "over 3 layers" in refusal(tmp_path, net(layers=many))


def test_a_cycle_of_edges_ends(tmp_path: Path) -> None:
    layers = GOOD.replace("2,2", "16,16").replace('size="16"', 'size="1024"')
    layers += "".join(f'<layer id="{i}" name="r" type="Reshape"/>' for i in (1, 2))
    pairs = ((0, 1), (1, 2), (2, 1), (1, 1))
    edges = "".join(f'<edge from-layer="{a}" to-layer="{b}" to-port="0"/>' for a, b in pairs)
    (tmp_path / "m.xml").write_text(net(layers=layers, edges=edges))
    assert find_weights(read_graph(tmp_path / "m.xml")) == ()


def test_layers_of_a_loops_body_are_kept_apart(sample_dir: Path) -> None:
    file = sample_dir / "openvino_language_model.xml"
    model, read = ov.Core().read_model(file), read_graph(file)
    loops = [op for op in model.get_ops() if op.get_type_name() == "Loop"]
    inside = sum(len(loop.get_function().get_ops()) for loop in loops)
    assert loops and len(read.types) == len(model.get_ops()) + inside
    assert [port.name for port in read.results] == ["logits"]


@pytest.mark.parametrize(
    ("kind", "zero", "mode"),
    [
        ("i4", None, "int4_sym"),
        ("u4", "many", "int4_asym"),
        ("u4", "one", "int4_sym"),
        ("i8", None, "int8_sym"),
        ("u8", "many", "int8_asym"),
        ("nf4", None, "nf4"),
        ("f16", None, "f16"),
        ("f8e4m3", None, "fp8_e4m3"),
    ],
)
def test_modes_by_what_decompresses_a_weight(kind: str, zero: str | None, mode: str, tmp_path: Path) -> None:
    out, groups, size = 8, 4, 32
    plain = kind == "f16"
    shape = [out, groups * size] if plain else [out, groups, size]
    element = getattr(ov.Type, kind)
    packed: ov.Node = ops.constant(np.ones(shape, dtype=np.float32), dtype=element)
    value = ops.convert(packed, "f32")
    if zero:
        zeros = [1] if zero == "one" else [out, groups, 1]
        value = ops.subtract(value, ops.convert(ops.constant(np.full(zeros, 8), dtype=element), "f32"))
    if not plain:
        value = ops.multiply(value, ops.constant(np.ones([out, groups, 1], dtype=np.float32)))
        value = ops.reshape(value, np.array([out, groups * size]), False)
    states = parameter("hidden_states", [-1, groups * size])
    save(tmp_path, "m", [ops.matmul(states, value, False, True).output(0)], [states], ["logits"])
    (scheme,) = schemes(find_weights(read_graph(tmp_path / "m.xml")))
    assert (scheme.mode, scheme.group) == (mode, None if plain else size)
    assert scheme.parameters == out * groups * size


@pytest.mark.parametrize("kind", ["i4", "u4", "i8", "u8", "f16", "bf16", "f32"])
def test_rows_are_what_openvino_multiplies_with(kind: str, tmp_path: Path) -> None:
    rows, groups, size = 6, 2, 32
    rng = np.random.default_rng(0)
    low, high = {"i4": (-8, 8), "u4": (0, 16), "i8": (-128, 128), "u8": (0, 256)}.get(kind, (-4, 5))
    plain = kind.endswith(("16", "32"))
    shape = [rows, groups * size] if plain else [rows, groups, size]
    element = getattr(ov.Type, kind)
    value: ov.Node = ops.convert(ops.constant(rng.integers(low, high, shape), dtype=element), "f32")
    if not plain:
        if kind.startswith("u"):
            zeros = ops.constant(rng.integers(1, 9, (rows, groups, 1)), dtype=element)
            value = ops.subtract(value, ops.convert(zeros, "f32"))
        value = ops.multiply(value, ops.constant(rng.uniform(0.5, 2, (rows, groups, 1)).astype(np.float32)))
        value = ops.reshape(value, np.array([rows, groups * size]), False)
    states = parameter("hidden_states", [-1, groups * size])
    save(tmp_path, "m", [ops.matmul(states, value, False, True).output(0)], [states], ["logits"])
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    compiled = ov.Core().compile_model(tmp_path / "m.xml", "CPU", exact)
    theirs = compiled([np.eye(groups * size, dtype=np.float32)])[0].T
    graph = read_graph(tmp_path / "m.xml")
    (weight,) = find_weights(graph)
    for row in range(rows):
        ours = read_row(graph, weight, row)
        assert ours is not None and np.allclose(ours, theirs[row], atol=1e-3)


CHILD = """
import json, sys
from evals.inspection.directory import inspect_directory
def read_so_far():
    return int(next(line for line in open("/proc/self/io") if line.startswith("rchar")).split()[1])
def peak_kb():  # of this program alone: getrusage's ru_maxrss counts the parent before exec too
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
before = read_so_far()
found = inspect_directory(sys.argv[1])
print(json.dumps({"rss_kb": peak_kb(), "read": read_so_far() - before,
    "size": found.size, "codes": [p.code for p in found.problems],
    "parameters": [s.parameters for p in found.parts for s in p.schemes]}))
"""


def test_a_directory_of_20_gb_is_not_read(sample_dir: Path, tmp_path: Path, repo: Path) -> None:
    """Files of 20 GB that hold nothing (sparse), under graphs that speak of them all: 60 layers' worth of edges."""
    layers, edges, offset = [], [], 0
    for i in range(0, 4000, 4):
        rows, columns = 5120, 4096
        layers.append(
            CONST.format(id=i, kind="u8", shape=f"{rows},{columns}", offset=offset, size=rows * columns)
        )
        offset += rows * columns
        layers.append(f'<layer id="{i + 1}" name="x{i}" type="Convert"/>')
        layers.append(f'<layer id="{i + 2}" name="m{i}" type="MatMul"/>')
        layers.append(CONST.format(id=i + 3, kind="f32", shape=f"1,1,{rows}", offset=0, size=rows * 4))
        edges.append(f'<edge from-layer="{i}" to-layer="{i + 1}" to-port="0"/>')
        edges.append(f'<edge from-layer="{i + 1}" to-layer="{i + 2}" to-port="1"/>')
    target = tmp_path / "openvino_language_model"
    target.with_suffix(".xml").write_text(net(layers="".join(layers), edges="".join(edges)))
    with target.with_suffix(".bin").open("wb") as file:
        file.truncate(offset)
    for file in sample_dir.iterdir():
        if not (tmp_path / file.name).exists():
            (tmp_path / file.name).symlink_to(file)
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True, cwd=repo
    )
    said = json.loads(ran.stdout)
    assert said["size"] > 20 * 10**9 and 1000 * 5120 * 4096 in said["parameters"]
    assert "weights-zero" in said["codes"]
    assert said["rss_kb"] < 300_000
    assert said["read"] < 20 << 20
