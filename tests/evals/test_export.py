"""The threat: an export without a head, or half of one, that looks like success; or a head with wrong weights."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evals.export import environment
from evals.export.environment import ExporterMissing, environment_dir, exporter_python, last_words
from evals.export.export import ExportFailed, check_checkpoint, export
from evals.export.stage import HEAD_FILE, needs_staging, stage
from evals.headbuild.checkpoint import Checkpoint, read_checkpoint
from evals.headbuild.tensors import read_tensor
from evals.inspection.types import Inspection
from evals.model_dir import ModelDirError
from evals.sample import sample_dir
from tests.evals.checkpoints import MODELS, of_tensors, read, tensors_of, write

BODY = "model.language_model.embed_tokens.weight"


def exporter(place: Path, body: str) -> Path:
    """A stand-in for an interpreter that has the exporter: `body` sees its arguments, the last one is the output."""
    place.write_text(
        f'#!{sys.executable}\nimport os, shutil, sys\nout, sample = sys.argv[-1], "{sample_dir()}"\n{body}\n'
    )
    place.chmod(0o755)
    return place


def copying(*without: str) -> str:
    """An exporter's body that writes the sample's export, but for these files."""
    return f"shutil.copytree(sample, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*{without!r}))"


def run(tmp_path: Path, body: str) -> Inspection:
    checkpoint = check_checkpoint(MODELS / "qwen3_5", tmp_path / "o" / "out")
    python = exporter(tmp_path / "python", body)
    return export(checkpoint, tmp_path / "o" / "out", python, "int4", group=64)


def test_what_is_whole_is_kept(tmp_path: Path) -> None:
    found = run(tmp_path, copying() + "\nopen(sys.argv[0] + '.said', 'w').write(' '.join(sys.argv[1:]))")
    assert found.servable and found.layout == "exported"
    assert sorted(p.name for p in (tmp_path / "o" / "out").iterdir()) == sorted(
        p.name for p in sample_dir().iterdir()
    )
    said = (tmp_path / "python.said").read_text()
    assert (
        "export openvino --model checkpoint --task image-text-to-text --weight-format int4 --group-size 64"
        in said
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (copying("openvino_mtp_model*"), "no head: declared in config (1 layer)"),
        (copying("openvino_mtp_model.bin"), "openvino_mtp_model.bin missing"),
        (copying("openvino_tokenizer*"), "no openvino_tokenizer.xml"),
        (copying("*"), "an empty directory"),
        (
            copying("openvino_mtp_model*") + "\nraise RuntimeError('Assign: input bf16, variable f32')",
            "variable f32",
        ),
        (copying() + "\nsys.exit(3)", "code 3"),
        (copying() + "\nos.kill(os.getpid(), 9)", "signal 9"),
    ],
    ids=["no head", "half a head", "no tokenizer", "nothing", "raises", "exits", "killed"],
)
def test_what_is_not_whole_is_removed(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(ExportFailed) as caught:
        run(tmp_path, body)
    assert words in str(caught.value)
    assert not list((tmp_path / "o").iterdir())


def test_a_checkpoint_without_a_head_is_refused_before_the_exporter_is_looked_for(tmp_path: Path) -> None:
    checkpoint = of_tensors(
        tmp_path / "c", MODELS / "qwen3_5/config.json", {"lm_head.weight": np.zeros((2, 2))}
    )
    with pytest.raises(ModelDirError, match="saved without its head"):
        check_checkpoint(checkpoint, tmp_path / "out")
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ModelDirError, match="expected nothing there yet"):
        check_checkpoint(MODELS / "qwen3_5", tmp_path / "taken")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "can't be run"),
        ("#!/bin/sh\nexit 1", "expected an interpreter with optimum-intel"),
        ("", "can't be run"),
    ],
    ids=["absent", "refuses", "empty"],
)
def test_an_interpreter_without_the_exporter_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    python = tmp_path / "python"
    if text is not None:
        python.write_text(text)
        python.chmod(0o755)
    with pytest.raises(ExporterMissing, match=words):
        exporter_python(python, pytest.fail)


def test_this_interpreter_lacks_the_exporter_and_the_sentence_says_what() -> None:
    with pytest.raises(ExporterMissing, match="PackageNotFoundError"):
        exporter_python(Path(sys.executable), pytest.fail)


def test_an_environment_that_cannot_be_made_is_no_environment_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip fails: the sentence says how, and what was begun isn't taken for whole. venv and pip are stood in for."""
    pip = "#!/bin/sh\\necho ERROR: No matching distribution; exit 1"
    make = (
        f"home = sys.argv[-1]\nos.makedirs(home + '/bin')\nopen(home + '/bin/python', 'w').write('{pip}')\n"
    )
    python = exporter(tmp_path / "python", make + "os.chmod(home + '/bin/python', 0o755)")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(python))
    told: list[str] = []
    for _ in range(2):
        with pytest.raises(
            ExporterMissing, match=r"pip install ended with 1 .ERROR: No matching distribution"
        ):
            exporter_python(None, told.append)
    assert len(told) == 2 and not (environment_dir() / environment.READY).exists()
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with pytest.raises(ExporterMissing, match="XDG_CACHE_HOME"):
        exporter_python(None, told.append)


def test_a_disk_without_room_is_told_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda _: SimpleNamespace(free=1_400_000_000))
    with pytest.raises(ExporterMissing, match=r"expected 4\.3 GB free .*, found 1\.4 GB.*XDG_CACHE_HOME"):
        exporter_python(None, pytest.fail)
    assert not environment_dir().exists()


def test_torch_comes_first_and_torchvision_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torchvision of another build than torch's breaks the exporter's imports. venv and pip are stood in for."""
    said = tmp_path / "said"
    pip = f'#!/bin/sh\\necho "$@" >> {said}'
    make = (
        f"home = sys.argv[-1]\nos.makedirs(home + '/bin')\nopen(home + '/bin/python', 'w').write('{pip}')\n"
    )
    python = exporter(tmp_path / "python", make + "os.chmod(home + '/bin/python', 0o755)")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(python))
    told: list[str] = []
    assert exporter_python(None, told.append) == exporter_python(None, told.append)
    first, second, _ = said.read_text().splitlines()
    assert len(told) == 1 and first.endswith(" torch==2.13.0") and first.count("==") == 1
    assert "--no-deps" in second and "optimum-intel==2.2.0" in second and "torchvision" not in second


def test_no_registry_is_named() -> None:
    text = environment.CONSTRAINTS.read_text()
    assert "://" not in text and "index-url" not in text
    assert all("==" in line for line in text.splitlines() if line and not line.startswith("#"))


def test_the_last_error_is_what_is_told() -> None:
    output = b"Traceback\n  File x\nRuntimeError: Assign: bf16\n\nSome progress 100%\n"
    assert last_words(output) == "RuntimeError: Assign: bf16"
    assert last_words(b"only this\n") == "only this" and last_words(b"") == ""
    assert len(last_words(b"ValueError: " + b"x" * 5000)) <= 400


def narrow(to: Path, source: str = "qwen3_5", loose: bool = False) -> Checkpoint:
    """The sample's head in bf16, as real checkpoints have it; loose: experts one by one."""
    tensors = tensors_of(source)
    if loose:
        prefix = "mtp.layers.0.mlp.experts."
        both, down = tensors.pop(f"{prefix}gate_up_proj"), tensors.pop(f"{prefix}down_proj")
        for number in range(len(both)):
            for which, values in zip(("gate", "up"), np.split(both[number], 2), strict=True):
                tensors[f"{prefix}{number}.{which}_proj.weight"] = values
            tensors[f"{prefix}{number}.down_proj.weight"] = down[number]
    tensors[BODY] = np.ones((4, 4), dtype=np.float32)
    return read_checkpoint(of_tensors(to, MODELS / source / "config.json", tensors, "BF16"))


def test_only_checkpoints_that_the_exporter_cannot_take_are_staged(tmp_path: Path) -> None:
    wide, bf16 = read_checkpoint(MODELS / "qwen3_5"), narrow(tmp_path / "a")
    assert not needs_staging(wide, "fp32") and needs_staging(bf16, "fp32")
    assert not any(needs_staging(bf16, name) for name in ("fp16", "int8", "int4"))
    assert needs_staging(narrow(tmp_path / "b", "qwen3_5_moe", loose=True), "int4")
    assert not needs_staging(read_checkpoint(MODELS / "qwen3_5_moe"), "int4")


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(("source", "loose"), [("qwen3_5", False), ("qwen3_5_moe", True)])
def test_a_staged_checkpoint_has_the_same_head_in_float32(
    tmp_path: Path, source: str, loose: bool, indexed: bool
) -> None:
    given = narrow(tmp_path / "c", source, loose)
    if indexed:
        (given.path / "model.safetensors").rename(given.path / "model-00001-of-00001.safetensors")
        names = dict.fromkeys(
            read(given.path / "model-00001-of-00001.safetensors")[0], "model-00001-of-00001.safetensors"
        )
        (given.path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        given = read_checkpoint(given.path)
    (given.path / "notes").symlink_to("notes")  # a link that leads nowhere is no reason to fail
    (tmp_path / "s").mkdir()
    stage(given, tmp_path / "s")
    staged = read_checkpoint(tmp_path / "s")
    assert staged.fused == (source == "qwen3_5_moe")
    for name, values in tensors_of(source).items():
        tensor = staged.tensors[name.removeprefix("mtp.")]
        assert tensor.dtype == "F32" and tensor.file.name == HEAD_FILE
        assert np.array_equal(read_tensor(tensor, np.float32), values)
    index = json.loads((tmp_path / "s" / "model.safetensors.index.json").read_text())
    assert (tmp_path / "s" / index["weight_map"][BODY]).is_symlink() and index["metadata"]["total_size"] > 0
    assert not (tmp_path / "s" / "model.safetensors").exists()


def test_a_hub_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    found = environment.clean_environment()
    assert (
        found["HF_HUB_OFFLINE"] == "1" and "PYTHONPATH" not in found and found["PATH"] == os.environ["PATH"]
    )


def test_values_that_are_not_finite_do_not_reach_the_exporter(tmp_path: Path) -> None:
    given = narrow(tmp_path / "c")
    header, data = read(given.path / "model.safetensors")
    at = header["mtp.fc.weight"]["data_offsets"][0]
    write(given.path / "model.safetensors", header, data[:at] + b"\xc0\x7f" + data[at + 2 :])
    (tmp_path / "s").mkdir()
    with pytest.raises(ModelDirError, match="aren't finite"):
        stage(read_checkpoint(given.path), tmp_path / "s")
