"""The threat: a head of another model, a damaged part or a trap in a config passes for something to gate."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from evals.digest import digest_model
from evals.inspection.directory import inspect_directory
from evals.inspection.graph import read_graph
from evals.inspection.pairing import require_pairing
from evals.inspection.types import Inspection, Part, Problem
from evals.inspection.values import read_row
from evals.inspection.weights import find_weights, lm_head
from evals.model_dir import ModelDirError, inspect_model
from tests.evals.inspection_dirs import (
    EMBEDDINGS,
    HEAD,
    TARGET,
    edited,
    linked,
    save_embeddings,
    save_expert_head,
    save_lm_head,
    save_text_model,
)
from tests.evals.split_dirs import published_layer, split_sample


def part(found: Inspection, role: str) -> Part:
    (one,) = (part for part in found.parts if part.role == role)
    return one


def problem(found: Inspection, code: str) -> Problem:
    matching = [problem for problem in found.problems if problem.code == code]
    assert len(matching) == 1, found.problems
    return matching[0]


def refused(found: Inspection, code: str) -> Problem:
    assert not found.servable
    one = problem(found, code)
    assert one.severity == "error"
    return one


@pytest.fixture(scope="session")
def whole(sample_dir: Path) -> Inspection:
    return inspect_directory(sample_dir)


def test_a_whole_directory_is_servable_without_a_warning(whole: Inspection) -> None:
    assert whole.servable
    assert [p for p in whole.problems if p.severity != "note"] == []
    assert (whole.layout, whole.layers_declared) == ("exported", 1)


def test_shapes_agree_with_config_and_openvino(whole: Inspection, sample_dir: Path) -> None:
    config = json.loads((sample_dir / "config.json").read_text())["text_config"]
    assert whole.hidden_size == config["hidden_size"]
    assert whole.vocabulary == config["vocab_size"]
    assert whole.decoder_layers == config["num_hidden_layers"]
    model = ov.Core().read_model(sample_dir / f"{HEAD}.xml")
    head = part(whole, "head")
    assert {port.name for port in head.inputs} == {name for port in model.inputs for name in port.names}
    assert {port.name for port in head.outputs} == {name for port in model.outputs for name in port.names}
    assert len(head.states) == len(model.get_variables())


@pytest.mark.parametrize("stem", [TARGET, HEAD, EMBEDDINGS])
def test_quantisation_is_what_openvino_reads(stem: str, sample_dir: Path, whole: Inspection) -> None:
    model = ov.Core().read_model(sample_dir / f"{stem}.xml")
    weights: dict[str, int] = {}
    for op in model.get_ops():
        if op.get_type_name() == "Constant" and len(op.get_output_shape(0)) > 1:
            name = op.get_friendly_name()
            kind = op.get_output_element_type(0).get_type_name()
            if kind in ("u4", "i4", "u8", "i8") and not name.endswith("zero_point"):
                weights[kind] = weights.get(kind, 0) + int(np.prod(op.get_output_shape(0)))
    (described,) = (part for part in whole.parts if part.name == stem)
    by_bits = {kind[1:]: count for kind, count in weights.items()}
    assert {str(s.bits): s.parameters for s in described.schemes if s.bits < 16} == by_bits
    assert sum(scheme.share for scheme in described.schemes) == pytest.approx(1)
    for scheme in described.schemes:
        assert scheme.mode.endswith("asym" if f"u{scheme.bits}" in weights else "sym")


def test_a_backup_layer_is_told_from_what_is_declared(whole: Inspection) -> None:
    head = part(whole, "head")
    assert head.declared["mode"] == "int4_asym"
    assert {scheme.mode for scheme in head.schemes} == {"int4_asym", "int8_asym"}
    groups = {"int4_asym": int(head.declared["group_size"]), "int8_asym": -1}
    assert {scheme.mode: scheme.group for scheme in head.schemes} == groups
    assert whole.draft is not None and whole.draft.most == whole.draft.least
    assert whole.draft.layer == sum(scheme.bytes for scheme in head.schemes)


def test_a_row_is_what_openvino_computes(sample_dir: Path, tmp_path: Path) -> None:
    graph = read_graph(sample_dir / f"{EMBEDDINGS}.xml")
    (weight,) = find_weights(graph)
    compiled = ov.Core().compile_model(sample_dir / f"{EMBEDDINGS}.xml", "CPU")
    for row in (0, 7, weight.const.shape[0] - 1):
        theirs = compiled([np.array([[row]])])[0].reshape(-1)
        ours = read_row(graph, weight, row)
        assert ours is not None and np.allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize(
    "name", [f"{stem}.{end}" for stem in (TARGET, HEAD, EMBEDDINGS) for end in ("xml", "bin")]
)
@pytest.mark.parametrize("fault", ["missing", "empty", "short", "foreign", "pointer"])
def test_a_damaged_part_is_refused(name: str, fault: str, sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", without=(name,))
    data = (sample_dir / name).read_bytes()
    written = {
        "empty": b"",
        "short": data[: len(data) // 2],
        "foreign": b"<html>404</html>",
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    }
    if fault in written:
        (root / name).write_bytes(written[fault])
    found = inspect_directory(root)
    assert not found.servable
    assert name in " ".join(p.where + p.message for p in found.problems if p.severity == "error")


def test_one_byte_short_of_its_last_constant(sample_dir: Path, tmp_path: Path) -> None:
    name = "openvino_vision_embeddings_merger_model.bin"
    root = linked(sample_dir, tmp_path / "m", own=(name,))
    os.truncate(root / name, (root / name).stat().st_size - 1)
    short = refused(inspect_directory(root), "weights-short")
    assert short.where == name and "its graph needs" in short.message


@pytest.mark.parametrize("end", ["bin", "xml"])
def test_swapped_files_are_refused(end: str, sample_dir: Path, tmp_path: Path) -> None:
    one, other = f"{TARGET}.{end}", f"{HEAD}.{end}"
    root = linked(sample_dir, tmp_path / "m", without=(one, other))
    shutil.copyfile(sample_dir / one, root / other)
    shutil.copyfile(sample_dir / other, root / one)
    assert not inspect_directory(root).servable


def test_pointer_files_are_named_together(sample_dir: Path, tmp_path: Path) -> None:
    pointers = ("tokenizer.json", "openvino_vision_embeddings_model.bin", "generation_config.json")
    root = linked(sample_dir, tmp_path / "m", without=pointers)
    for name in pointers:
        (root / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    found = refused(inspect_directory(root), "pointer-files")
    assert all(name in found.message for name in pointers) and "git lfs pull" in found.message


def test_what_config_declares_is_shown_of_a_directory_that_is_refused(
    sample_dir: Path, tmp_path: Path
) -> None:
    for layers in (0, 2, None):
        said = f'"mtp_num_hidden_layers": {"null" if layers is None else layers}'
        root = edited(sample_dir, tmp_path / str(layers), "config.json", ('"mtp_num_hidden_layers": 1', said))
        found = inspect_directory(root)
        assert (found.layers_declared, found.layout, found.model_type) == (layers, "exported", "qwen3_5")
        assert found.servable is (layers is None)
    assert problem(found, "head-undeclared").severity == "note"


def test_a_head_without_a_weight_is_refused(sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", own=(f"{HEAD}.xml",))
    text = re.sub(r"<edge [^>]*>", "", (root / f"{HEAD}.xml").read_text())
    (root / f"{HEAD}.xml").write_text(text)
    assert refused(inspect_directory(root), "no-weights").where == f"{HEAD}.xml"


def test_constants_over_one_another_are_suspected(sample_dir: Path, tmp_path: Path) -> None:
    graph = read_graph(sample_dir / f"{HEAD}.xml")
    one, other = sorted({(c.offset, c.size) for c in graph.consts.values()})[:2]
    moved = (f'offset="{other[0]}" size="{other[1]}"', f'offset="{one[0] + 1}" size="{other[1]}"')
    found = inspect_directory(edited(sample_dir, tmp_path / "m", f"{HEAD}.xml", moved))
    assert problem(found, "weights-overlap").severity == "warning"


def test_weights_of_another_graph_are_refused(sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", without=(f"{HEAD}.bin",))
    shutil.copyfile(sample_dir / f"{TARGET}.bin", root / f"{HEAD}.bin")
    refused(inspect_directory(root), "weights-foreign")


def test_a_file_that_was_reserved_and_never_filled(sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", without=(f"{HEAD}.bin",))
    with (root / f"{HEAD}.bin").open("wb") as file:
        file.truncate((sample_dir / f"{HEAD}.bin").stat().st_size)
    refused(inspect_directory(root), "weights-zero")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("stem", [HEAD, EMBEDDINGS])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(stem: str, value: float, sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", own=(f"{stem}.bin",))
    graph = read_graph(sample_dir / f"{stem}.xml")
    weight = max(find_weights(graph), key=lambda weight: weight.bytes)
    assert weight.scale is not None
    with (root / f"{stem}.bin").open("r+b") as file:
        file.seek(weight.const.offset)
        file.write(bytes(64))
        file.seek(weight.scale.offset)
        file.write(np.full(4, value, dtype=np.float16).tobytes())
    assert refused(inspect_directory(root), "weights-not-finite").where == f"{stem}.bin"


def test_the_target_posing_as_head(sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", without=(f"{HEAD}.xml", f"{HEAD}.bin"))
    for end in ("xml", "bin"):
        shutil.copyfile(sample_dir / f"{TARGET}.{end}", root / f"{HEAD}.{end}")
    found = inspect_directory(root)
    assert "hidden_states" in refused(found, "no-mtp-head").message
    with pytest.raises(ModelDirError, match="no MTP head"):
        require_pairing(inspect_model(root))


def test_a_head_of_another_hidden_size(sample_dir: Path, tmp_path: Path) -> None:
    size = inspect_directory(sample_dir).hidden_size
    root = edited(sample_dir, tmp_path / "m", f"{HEAD}.xml", (f'shape="?,?,{size}"', 'shape="?,?,320"'))
    message = refused(inspect_directory(root), "hidden-size-mismatch").message
    assert "320" in message and str(size) in message
    with pytest.raises(ModelDirError, match="320"):
        require_pairing(inspect_model(root))


@pytest.mark.parametrize(("tokens", "width"), [(64, None), (None, 64)])
def test_embeddings_of_another_model(
    tokens: int | None, width: int | None, sample_dir: Path, tmp_path: Path, whole: Inspection
) -> None:
    root = linked(sample_dir, tmp_path / "m", without=(f"{EMBEDDINGS}.xml", f"{EMBEDDINGS}.bin"))
    save_embeddings(
        root,
        np.random.default_rng(0).standard_normal((tokens or whole.vocabulary, width or whole.hidden_size)),
    )
    code = "vocabulary-mismatch" if tokens else "hidden-size-mismatch"
    assert refused(inspect_directory(root), code).where == f"{EMBEDDINGS}.xml"
    with pytest.raises(ModelDirError, match=EMBEDDINGS):
        require_pairing(inspect_model(root))


def test_a_tokenizer_with_more_ids_than_logits(sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", own=("tokenizer.json",))
    tokenizer = json.loads((root / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 248_000, "content": "<|x|>"})
    (root / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "248000" in refused(inspect_directory(root), "tokenizer-mismatch").message
    with pytest.raises(ModelDirError, match="another model's tokenizer"):
        require_pairing(inspect_model(root))


def test_pairing_accepts_the_sample(sample_dir: Path) -> None:
    require_pairing(inspect_model(sample_dir))


def test_the_split_layout_is_looked_at_as_a_pair(sample_dir: Path, tmp_path: Path, whole: Inspection) -> None:
    assert whole.hidden_size and whole.vocabulary
    root = linked(sample_dir, tmp_path / "m", without=(f"{HEAD}.xml", f"{HEAD}.bin"))
    for end in ("xml", "bin"):
        shutil.copyfile(sample_dir / f"{HEAD}.{end}", root / f"openvino_mtp_layer.{end}")
    assert inspect_directory(root).layout == "half"
    save_lm_head(root, whole.hidden_size, whole.vocabulary)
    found = inspect_directory(root)
    assert (found.layout, found.servable) == ("split", True)
    assert found.draft is not None and found.draft.lm_head == whole.hidden_size * whole.vocabulary * 4
    save_lm_head(root, whole.hidden_size, whole.vocabulary + 8)
    assert "another model's head" in refused(inspect_directory(root), "vocabulary-mismatch").message
    with pytest.raises(ModelDirError, match="another model's head"):
        require_pairing(inspect_model(root))


def test_a_published_heads_own_names_are_no_fault(sample_dir: Path, tmp_path: Path) -> None:
    root = split_sample(sample_dir, tmp_path / "m")
    published_layer(sample_dir, root)
    found = inspect_directory(root)
    assert found.servable and {port.name for port in part(found, "head").inputs} >= {"input_embeds"}
    require_pairing(inspect_model(root))


def test_two_heads_are_ambiguous_until_one_is_named(
    sample_dir: Path, tmp_path: Path, whole: Inspection
) -> None:
    assert whole.hidden_size and whole.vocabulary
    root = linked(sample_dir, tmp_path / "m")
    for end in ("xml", "bin"):
        shutil.copyfile(sample_dir / f"{HEAD}.{end}", root / f"openvino_mtp_layer.{end}")
    save_lm_head(root, whole.hidden_size, whole.vocabulary)
    found = inspect_directory(root)
    assert found.layout == "both" and "ambiguous" in refused(found, "directory").message
    named = inspect_directory(root, layout="genai")
    assert named.servable and part(named, "head").name == HEAD
    assert part(inspect_directory(root, layout="split"), "head").name == "openvino_mtp_layer"


def test_tied_embeddings_are_found_by_their_rows(sample_dir: Path, tmp_path: Path, whole: Inspection) -> None:
    assert (whole.tied_declared, whole.tied_found) == (False, False)
    target = read_graph(sample_dir / f"{TARGET}.xml")
    weight = lm_head(target, find_weights(target))
    assert weight is not None
    rows = [read_row(target, weight, row) for row in range(weight.const.shape[0])]
    root = linked(sample_dir, tmp_path / "m", without=(f"{EMBEDDINGS}.xml", f"{EMBEDDINGS}.bin"))
    save_embeddings(root, np.stack([row for row in rows if row is not None]))
    found = inspect_directory(root)
    assert found.tied_found is True and found.servable
    assert "tie_word_embeddings" in problem(found, "config-mismatch").message


@pytest.mark.parametrize("tied", [True, False])
def test_a_text_only_target_holds_its_embeddings(
    tied: bool, sample_dir: Path, tmp_path: Path, whole: Inspection
) -> None:
    assert whole.hidden_size and whole.vocabulary
    files = tuple(f"{stem}.{end}" for stem in (TARGET, EMBEDDINGS) for end in ("xml", "bin"))
    root = linked(sample_dir, tmp_path / "m", without=files)
    save_text_model(root, whole.vocabulary, whole.hidden_size, tied=tied)
    found = inspect_directory(root)
    assert (found.target, found.hidden_size, found.vocabulary) == (
        "openvino_model",
        whole.hidden_size,
        whole.vocabulary,
    )
    assert found.tied_found is tied and found.servable
    save_text_model(root, whole.vocabulary, whole.hidden_size + 8, tied=tied)
    refused(inspect_directory(root), "hidden-size-mismatch")


@pytest.mark.parametrize(("added", "words"), [(-1, "without the 1"), (1, "added twice")])
def test_norms_of_the_wrong_convention_are_suspected(
    added: int, words: str, sample_dir: Path, tmp_path: Path
) -> None:
    from evals.inspection.norms import norm_constants

    root = linked(sample_dir, tmp_path / "m", own=(f"{HEAD}.bin",))
    constants = norm_constants(read_graph(sample_dir / f"{HEAD}.xml"))
    assert len(constants) == 7  # two before fc, two of the layer, q and k, the last
    weights = np.memmap(root / f"{HEAD}.bin", dtype=np.uint8, mode="r+")
    for const in {const.offset: const for const in constants}.values():
        weights[const.offset : const.offset + const.size].view(np.float32)[:] += added
    weights.flush()
    found = inspect_directory(root)
    suspicion = problem(found, "norm-convention")
    assert suspicion.severity == "warning" and words in suspicion.message


@pytest.mark.parametrize(("extra_op", "read"), [(False, "chosen"), (True, "all")])
def test_experts_are_read_as_the_device_compiles_them(
    extra_op: bool, read: str, sample_dir: Path, tmp_path: Path, whole: Inspection
) -> None:
    assert whole.hidden_size
    root = linked(sample_dir, tmp_path / "m")
    save_expert_head(root, whole.hidden_size, experts=8, chosen=2, extra_op=extra_op)
    unknown = inspect_directory(root)
    experts = part(unknown, "head").experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.read) == (8, 2, "unknown")
    assert experts.bytes_all == 3 * 8 * 32 * whole.hidden_size * 4
    assert experts.bytes_chosen == experts.bytes_all // 4
    assert unknown.draft is not None
    assert unknown.draft.most - unknown.draft.least == experts.bytes_all - experts.bytes_chosen
    assert problem(unknown, "experts-unknown").severity == "note"
    known = inspect_directory(root, device="CPU")
    seen = part(known, "head").experts
    assert seen is not None and seen.read == read
    assert ("experts-dense" in {p.code for p in known.problems}) == extra_op


def test_a_device_that_refuses_the_head_is_an_error(sample_dir: Path) -> None:
    assert (
        "--device NOWHERE" in refused(inspect_directory(sample_dir, device="NOWHERE"), "not-compiled").message
    )


def test_decoder_layers_that_name_nothing_or_are_absent(sample_dir: Path, tmp_path: Path) -> None:
    name = f"{TARGET}.xml"
    renamed = edited(
        sample_dir, tmp_path / "a", name, ("&quot;producer&quot;:&quot;", "&quot;producer&quot;:&quot;x")
    )
    assert problem(inspect_directory(renamed), "decoder-layers-damaged").severity == "warning"
    torn = edited(sample_dir, tmp_path / "b", name, ('decoder_layers value="{', 'decoder_layers value="['))
    assert problem(inspect_directory(torn), "decoder-layers-damaged").severity == "warning"
    gone = edited(sample_dir, tmp_path / "c", name, ("<hidden_states_decoder_layers ", "<other "))
    assert inspect_directory(gone).decoder_layers is None
    assert problem(inspect_directory(gone), "no-decoder-layers").severity == "note"


def test_a_graph_that_a_newer_runtime_wrote(sample_dir: Path, tmp_path: Path, whole: Inspection) -> None:
    made = part(whole, "head").versions["openvino"]
    changed = edited(sample_dir, tmp_path / "a", f"{HEAD}.xml", (f'value="{made}"', 'value="2099.1.0-1-abc"'))
    found = inspect_directory(changed)
    assert "2099.1.0" in problem(found, "newer-runtime").message
    assert "different exports" in problem(found, "mixed-exports").message
    older = edited(sample_dir, tmp_path / "b", f"{HEAD}.xml", (f'value="{made}"', 'value="2024.1.0-1-abc"'))
    assert problem(inspect_directory(older), "older-runtime").severity == "note"


def test_config_that_declares_other_shapes(sample_dir: Path, tmp_path: Path, whole: Inspection) -> None:
    change = (f'"hidden_size": {whole.hidden_size}', '"hidden_size": 512')
    root = edited(sample_dir, tmp_path / "m", "config.json", change)
    assert "512" in problem(inspect_directory(root), "config-mismatch").message


def test_a_declared_quantisation_that_no_weight_has(sample_dir: Path, tmp_path: Path) -> None:
    root = edited(
        sample_dir, tmp_path / "m", f"{HEAD}.xml", ('mode value="int4_asym"', 'mode value="int4_sym"')
    )
    assert "int4_asym" in problem(inspect_directory(root), "quantisation-declared").message


def test_digests_are_those_of_a_verdict(sample_dir: Path, whole: Inspection) -> None:
    made = digest_model(inspect_model(sample_dir))
    assert inspect_directory(sample_dir, digests=True).digests == {
        "whole": made.whole,
        "target": made.target,
        "head": made.head,
    }
    assert whole.digests == {}
