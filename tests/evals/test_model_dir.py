"""The threat: a directory that isn't what its name or config says is decoded, and the verdict speaks of nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evals.digest import digest_model
from evals.model_dir import HeadLayout, ModelDir, ModelDirError, inspect_model, require_decodable

GRAPH = '<?xml version="1.0"?>\n<net name="m"><layer><data offset="0" size="{size}" /></layer></net>\n'
TARGET = ["openvino_language_model.xml", "openvino_language_model.bin"]
HEAD = ["openvino_mtp_model.xml", "openvino_mtp_model.bin"]
SPLIT = [f"openvino_mtp_{part}.{end}" for part in ("layer", "lm_head") for end in ("xml", "bin")]
DECLARED = {"mtp_num_hidden_layers": 1, "tie_word_embeddings": False}


def lay(path: Path, files: list[str], config: object = None, sizes: dict[str, int] | None = None) -> Path:
    """Make a directory of small graphs whose constants fill their weights files."""
    path.mkdir(parents=True, exist_ok=True)
    for name in files:
        size = (sizes or {}).get(name, 16)
        (path / name).write_bytes(GRAPH.format(size=16).encode() if name.endswith(".xml") else bytes(size))
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


# Case name in /work/shared/cases/reports.jsonl, C05 → what the refusal must say.
REFUSED = {
    "old export": ["no head", "declared in config (1 layer)", "no openvino_mtp_* file"],
    "xml without bin": ["broken", "openvino_mtp_model.bin missing"],
    "split layout, half": ["broken", "openvino_mtp_lm_head.* missing"],
    "both layouts": ["ambiguous", "two heads", "Name one"],
    "head, none declared": ["mismatch", "head file present", "declares 0 layers"],
    "two layers declared": ["unsupported", "2 MTP layers", "one exported"],
    "case trap": ["no head", "case-sensitive", "OpenVINO_MTP_Model.xml"],
    "zero bytes": ["broken", "openvino_mtp_model.bin is empty", "pointer file or cut download"],
}
CASES = {
    "old export": (
        DECLARED,
        [*TARGET, "openvino_text_embeddings_model.xml", "openvino_text_embeddings_model.bin"],
    ),
    "xml without bin": (DECLARED, [*TARGET, HEAD[0]]),
    "split layout, half": (DECLARED, [*TARGET, *SPLIT[:2]]),
    "both layouts": (DECLARED, [*TARGET, *HEAD, *SPLIT]),
    "head, none declared": (
        {"mtp_num_hidden_layers": 0},
        ["openvino_model.xml", "openvino_model.bin", *HEAD],
    ),
    "two layers declared": (
        {"mtp_num_hidden_layers": 2},
        ["openvino_model.xml", "openvino_model.bin", *HEAD],
    ),
    "case trap": (
        DECLARED,
        ["openvino_model.xml", "openvino_model.bin", "OpenVINO_MTP_Model.xml", "OpenVINO_MTP_Model.bin"],
    ),
    "zero bytes": (DECLARED, ["openvino_model.xml", "openvino_model.bin", *HEAD]),
}


def refusal(path: Path) -> str:
    with pytest.raises(ModelDirError) as caught:
        inspect_model(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_reported_directories_are_refused_with_their_reason(name: str, tmp_path: Path) -> None:
    config, files = CASES[name]
    lay(tmp_path, files, config, {"openvino_mtp_model.bin": 0} if name == "zero bytes" else None)
    message = refusal(tmp_path)
    for words in REFUSED[name]:
        assert words in message


def test_layer_only_is_a_head_that_shares_the_targets_lm_head(tmp_path: Path) -> None:
    model = inspect_model(lay(tmp_path, [*TARGET, *HEAD], DECLARED))
    assert (model.head, model.target, model.declared_layers) == ("genai", "openvino_language_model", 1)
    assert model.head_files == ("openvino_mtp_model.bin", "openvino_mtp_model.xml")
    assert model.target_files == ("config.json", "openvino_language_model.bin", "openvino_language_model.xml")


def test_split_layout_is_a_layer_and_its_lm_head(tmp_path: Path) -> None:
    model = inspect_model(lay(tmp_path, [*TARGET, *SPLIT], DECLARED))
    assert (model.head, model.layer, model.lm_head) == ("split", "openvino_mtp_layer", "openvino_mtp_lm_head")
    assert model.head_files == tuple(sorted(SPLIT))


def test_of_two_heads_the_named_one_is_taken(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD, *SPLIT], DECLARED)
    exported, split = (inspect_model(tmp_path, layout=layout) for layout in ("genai", "split"))
    assert (exported.layer, exported.lm_head, len(exported.head_files)) == ("openvino_mtp_model", None, 2)
    assert (split.layer, split.lm_head, len(split.head_files)) == (
        "openvino_mtp_layer",
        "openvino_mtp_lm_head",
        4,
    )
    assert exported.target_files == split.target_files
    assert not any("mtp" in name for name in exported.target_files)
    assert digest_model(exported).target == digest_model(split).target
    assert digest_model(exported).head != digest_model(split).head


def test_a_lone_lm_head_beside_the_exported_layer_is_used_where_split_is_named(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD, *SPLIT[2:]], DECLARED)
    assert "Name one (--layout exported, --layout split)" in refusal(tmp_path)
    split = inspect_model(tmp_path, layout="split")
    assert (split.layer, split.lm_head) == ("openvino_mtp_model", "openvino_mtp_lm_head")
    assert inspect_model(tmp_path, layout="genai").lm_head is None


@pytest.mark.parametrize("layout", ["genai", "split"])
def test_a_layout_that_is_not_there_is_refused(layout: HeadLayout, tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *(SPLIT if layout == "genai" else HEAD)], DECLARED)
    with pytest.raises(ModelDirError, match="no head" if layout == "genai" else "missing"):
        inspect_model(tmp_path, layout=layout)


def test_config_of_the_text_part_counts(tmp_path: Path) -> None:
    model = inspect_model(lay(tmp_path, [*TARGET, *HEAD], {"text_config": {"mtp_num_hidden_layers": 1}}))
    assert model.declared_layers == 1


def test_config_alone_is_no_head_and_no_config_is_no_objection(tmp_path: Path) -> None:
    assert inspect_model(lay(tmp_path / "a", [*TARGET, *HEAD])).declared_layers is None
    assert "no head" in refusal(lay(tmp_path / "b", TARGET))
    assert inspect_model(lay(tmp_path / "c", TARGET), need_head=False).head is None


def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    assert "nothing there" in refusal(tmp_path / "nowhere")
    lay(tmp_path, TARGET)
    assert "give its directory" in refusal(tmp_path / TARGET[0])


def test_not_a_model(tmp_path: Path) -> None:
    assert "empty directory" in refusal(lay(tmp_path / "empty", []))
    assert "gate export" in refusal(lay(tmp_path / "checkpoint", ["model.safetensors"], DECLARED))
    assert "notes.txt" in refusal(lay(tmp_path / "other", ["notes.txt"]))
    assert "two targets" in refusal(
        lay(tmp_path / "two", [*TARGET, "openvino_model.xml", "openvino_model.bin"])
    )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([f"snapshots/abc/{name}" for name in TARGET], "models in snapshots/abc; name that directory"),
        ([f"{one}/{name}" for one in ("int4", "int8") for name in TARGET], "int4, int8; name one of these"),
        (TARGET[1:], f"{TARGET[1]} without it"),
        (["OpenVINO_Model.xml"], "case-sensitive"),
        (["openvino_model.xml.incomplete", "README.md"], "isn't finished (openvino_model.xml.incomplete)"),
        (["README.md", "q4.gguf"], "name the file itself"),
        (["pytorch_model-00001-of-00002.bin"], "gate export"),
    ],
    ids=["hub cache", "several", "half", "case", "unfinished", "gguf", "torch"],
)
def test_what_lies_there_instead_of_a_model_is_said(files: list[str], words: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert words in refusal(tmp_path)


def test_a_download_that_is_not_finished_is_named(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, HEAD[0], f"{HEAD[1]}.incomplete"], DECLARED)
    assert f"{HEAD[1]} missing. Its download isn't finished ({HEAD[1]}.incomplete)" in refusal(tmp_path)


@pytest.mark.parametrize(("top", "nested"), [(0, 1), (1, 0)])
def test_a_config_that_contradicts_itself_is_named(top: int, nested: int, tmp_path: Path) -> None:
    config = {"mtp_num_hidden_layers": top, "text_config": {"mtp_num_hidden_layers": nested}}
    lay(tmp_path, [*TARGET, *HEAD], config)
    assert f"is {top} at its top and {nested} in text_config" in refusal(tmp_path)


def test_names_that_no_record_can_hold_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD], DECLARED)
    (tmp_path / os.fsdecode(b"notes\xff.txt")).write_bytes(b"")
    with pytest.raises(ModelDirError, match="name in UTF-8") as caught:
        inspect_model(tmp_path)
    str(caught.value).encode()


def test_a_graph_larger_than_any_is_refused_unread(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD], DECLARED)
    os.truncate(tmp_path / HEAD[0], 1 << 40)  # reading as much would take the test's time
    assert "no OpenVINO graph has over" in refusal(tmp_path)


def test_near_miss_names_are_named(tmp_path: Path) -> None:
    assert "openvino_mtp.xml" in refusal(lay(tmp_path, [*TARGET, "openvino_mtp.xml", "openvino_mtp.bin"]))


def test_a_cut_download_is_found_by_what_its_graph_needs(tmp_path: Path) -> None:
    message = refusal(lay(tmp_path, [*TARGET, *HEAD], DECLARED, {"openvino_mtp_model.bin": 15}))
    assert "has 15 bytes, its graph needs 16" in message


def test_a_cut_tokenizer_or_embedding_is_found_too(tmp_path: Path) -> None:
    for n, stem in enumerate(("openvino_tokenizer", "openvino_text_embeddings_model")):
        files = [*TARGET, *HEAD, f"{stem}.xml", f"{stem}.bin"]
        assert f"{stem}.bin has 3 bytes" in refusal(lay(tmp_path / str(n), files, sizes={f"{stem}.bin": 3}))


def test_a_span_on_the_seam_of_two_reads_is_seen(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD], DECLARED)
    older = b'<data element_type="f32" offset="10" shape="2,3" size="990"/>'  # attributes in order of name
    for pad in range((1 << 20) - 60, (1 << 20) + 1, 9):
        text = b"<net>" + b" " * pad + (older if pad % 2 else b'<data offset="10" size="990" />')
        (tmp_path / HEAD[0]).write_bytes(text)
        assert "needs 1000" in refusal(tmp_path)


def test_pointer_files_and_other_text_are_no_graph(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD], DECLARED)
    (tmp_path / HEAD[1]).write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "config.json is a Git LFS pointer" in refusal(tmp_path)
    lay(tmp_path, HEAD, DECLARED)
    (tmp_path / HEAD[0]).write_text("<html>404</html>")
    assert "no OpenVINO graph" in refusal(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"mtp_num_hidden_layers": "1"}',
        '{"mtp_num_hidden_layers": -1}',
        '{"mtp_num_hidden_layers": true}',
        '{"text_config": 3}',
        '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"model_type": "\udcff"}',
    ],
    ids=["text", "list", "string", "negative", "bool", "number", "deep", "bytes"],
)
def test_a_config_of_the_wrong_form_is_named(text: str, tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD])
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "config.json" in refusal(tmp_path)


def test_a_config_too_large_is_not_read(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD])
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate((4 << 20) + 1)
    assert "at most" in refusal(tmp_path)


def test_links_to_files_are_followed_and_dangling_ones_named(tmp_path: Path) -> None:
    blobs = lay(tmp_path / "blobs", [*TARGET, *HEAD], DECLARED)
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(blob)
    assert inspect_model(snapshot).size == inspect_model(blobs).size
    (blobs / HEAD[1]).unlink()
    assert "link whose file isn't there" in refusal(snapshot)


def test_a_pipe_is_refused_and_not_read(tmp_path: Path) -> None:
    lay(tmp_path, [*TARGET, *HEAD], DECLARED)
    os.mkfifo(tmp_path / "openvino_tokenizer.bin")
    assert "pipe" in refusal(tmp_path)


def test_an_export_that_failed_half_way_lacks_its_tokenizer(tmp_path: Path) -> None:
    model = inspect_model(lay(tmp_path, [*TARGET, *HEAD], DECLARED))
    with pytest.raises(ModelDirError, match=r"openvino_tokenizer\.xml"):
        require_decodable(model)


def test_a_real_export_is_whole(sample_dir: Path) -> None:
    model = inspect_model(sample_dir)
    assert isinstance(model, ModelDir)
    assert (model.head, model.missing, model.declared_layers) == ("genai", (), 1)
    require_decodable(model)
