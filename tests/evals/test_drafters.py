"""The threat: what drafts isn't what the user named. The runtime takes a head that lies there in a draft model's place,
another vocabulary's words are drafted, or a directory that can't draft is passed over in silence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino
import pytest
from msgspec.structs import replace
from openvino import opset13 as ops

from evals.arms import ArmError, build_arms, check_drafting, drafter_paths
from evals.digest import ModelDigests, digest_dir
from evals.drafters import inspect_drafter
from evals.model_dir import ModelDir, ModelDirError, inspect_model
from evals.plan import Plan, one_at_a_time

DIGESTS = ModelDigests(whole="w" * 64, target="t" * 64, head=None, files={})


def lay(
    path: Path, tokens: int = 8, *, tokenizer: bool = True, inputs: tuple[str, ...] = (), **says: str
) -> Path:
    """A directory with a graph from ids to logits of so many tokens; says: what its runtime information says."""
    path.mkdir()
    ids = ops.parameter([1, -1], np.int64, name="input_ids")
    table = ops.constant(np.ones((tokens, 4), np.float32))
    embedded = ops.gather(table, ids, ops.constant(np.array(0, np.int64)))
    more = [ops.parameter([1, -1, 4], np.float32, name=name) for name in inputs]
    for port in (ids, *more):
        port.output(0).set_names({port.friendly_name})
    for port in more:
        embedded = ops.add(embedded, port)
    logits = ops.matmul(embedded, table, False, True)
    logits.output(0).set_names({"logits"})
    model = openvino.Model([logits], [ids, *more])
    for name, value in says.items():
        model.set_rt_info(value, name)
    openvino.save_model(model, path / "openvino_model.xml", compress_to_fp16=False)
    if tokenizer:
        for stem in ("openvino_tokenizer", "openvino_detokenizer"):
            for end in ("xml", "bin"):
                (path / f"{stem}.{end}").write_bytes((path / f"openvino_model.{end}").read_bytes())
    return path


@pytest.fixture
def target(tmp_path: Path) -> ModelDir:
    return inspect_model(lay(tmp_path / "target"), need_head=False)


def test_the_graph_says_which_kind_of_draft_it_is(target: ModelDir, tmp_path: Path) -> None:
    hidden = {"tokenizer": False, "inputs": ("hidden_states",)}
    kinds = {
        "draft": lay(tmp_path / "model"),
        "eagle3": lay(tmp_path / "eagle", eagle3_mode="True", **hidden),
        "dflash": lay(tmp_path / "dflash", dflash_mode="true", **hidden),
    }
    for kind, path in kinds.items():
        found = inspect_drafter(target, path)
        assert (found.kind, found.path, found.digest) == (kind, path, digest_dir(path))
    assert inspect_drafter(target, lay(tmp_path / "off", eagle3_mode="False")).kind == "draft"


def _with_head(path: Path) -> None:
    lay(path)
    (path / "openvino_mtp_model.xml").write_text("<net/>")


def _vision(path: Path) -> None:
    lay(path)
    for end in ("xml", "bin"):
        (path / f"openvino_model.{end}").rename(path / f"openvino_language_model.{end}")


def _half_tokenizer(path: Path) -> None:
    (lay(path) / "openvino_detokenizer.bin").unlink()


def _cut(path: Path) -> None:
    weights = lay(path) / "openvino_model.bin"
    weights.write_bytes(weights.read_bytes()[:-8])


REFUSED: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "nothing": (lambda path: None, ["expected a model directory", "nothing"]),
    "empty": (Path.mkdir, ["expected openvino_model.xml", "no graph"]),
    "head": (_with_head, ["MTP head", "--head NAME=DIR"]),
    "vision": (_vision, ["expected openvino_model.xml", "openvino_language_model.xml"]),
    "cut": (_cut, ["broken", "openvino_model.bin"]),
    "vocabulary": (lambda path: lay(path, 9), ["8 tokens", "found one of 9"]),
    "no tokenizer": (lambda path: lay(path, tokenizer=False), ["tokenizer", "detokenizer"]),
    "half a tokenizer": (_half_tokenizer, ["openvino_detokenizer.bin missing"]),
    "eagle without hidden states": (lambda path: lay(path, eagle3_mode="True"), ["eagle3", "hidden_states"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_draft_is_refused(name: str, target: ModelDir, tmp_path: Path) -> None:
    make, words = REFUSED[name]
    make(tmp_path / "draft")
    with pytest.raises(ModelDirError) as caught:
        inspect_drafter(target, tmp_path / "draft")
    for word in (str(tmp_path / "draft"), *words):
        assert word in str(caught.value), caught.value


def test_hidden_states_of_a_gguf_file_cannot_be_found(target: ModelDir, tmp_path: Path) -> None:
    eagle = lay(tmp_path / "eagle", tokenizer=False, inputs=("hidden_states",), eagle3_mode="True")
    with pytest.raises(ModelDirError, match="names of its layers"):
        inspect_drafter(replace(target, source=tmp_path / "model.gguf"), eagle)


def test_a_draft_model_and_prompt_lookup_are_arms_of_their_own(target: ModelDir, tmp_path: Path) -> None:
    drafter = inspect_drafter(target, lay(tmp_path / "model"))
    arms = build_arms(DIGESTS, ks=(1, 3), drafter=drafter, max_ngram=3)
    assert [a.name for a in arms] == ["plain", "draft@1", "draft@3", "lookup@1", "lookup@3"]
    assert [a.head_digest for a in arms] == [None, drafter.digest, drafter.digest, None, None]
    assert [a.max_ngram for a in arms] == [None, None, None, 3, 3]
    other = build_arms(DIGESTS, ks=(1, 3), max_ngram=4)
    assert other[1].identity() != arms[3].identity()
    paths = drafter_paths(arms, drafter)
    plan = Plan(model=target.path, arms=arms, repeats={}, asked=(), stop_ids=frozenset(), heads=paths)
    built = [plan.build(arm) for arm in arms]
    assert [b.head for b in built] == [None, str(drafter.path), str(drafter.path), None, None]
    assert [b.max_ngram for b in built] == [None, None, None, 3, 3]


def test_a_drafts_weights_count_where_memory_is_short(
    target: ModelDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = inspect_drafter(target, lay(tmp_path / "model"))
    for file in (target.path, drafter.path):
        os.truncate(file / "openvino_model.bin", 1 << 20)
    memory = type("Memory", (), {"available": int(3.5 * (1 << 20))})
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    for with_draft in (None, drafter):
        arms = build_arms(DIGESTS, drafter=with_draft, max_ngram=None if with_draft else 3)
        plan = Plan(
            model=target.path,
            arms=arms,
            repeats={},
            asked=(),
            stop_ids=frozenset(),
            heads=drafter_paths(arms, with_draft),
        )
        assert one_at_a_time(plan) is (with_draft is not None)


def test_ways_that_do_not_go_together_are_refused() -> None:
    assert check_drafting(None, False, None, heads=True, leak=True) is None
    assert check_drafting(None, True, None, heads=False, leak=False) == 3
    assert check_drafting(Path("d"), True, 5, heads=False, leak=False) == 5
    for heads, leak, words in (
        (True, False, "--draft with --head"),
        (False, True, "--draft with --draft-leak"),
    ):
        with pytest.raises(ArmError, match=words):
            check_drafting(Path("d"), False, None, heads=heads, leak=leak)
    with pytest.raises(ArmError, match="--prompt-lookup beside it"):
        check_drafting(None, False, 3, heads=False, leak=False)
