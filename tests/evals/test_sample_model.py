"""Threat: the bundled sample isn't what its card says, and all that is shown on it shows nothing.

No token, rate or score of one machine is asserted: what must hold on any machine is the acceptance's order and
band, that each arm repeats itself, that answers end and mostly do what was asked, and that nothing but an
ordinary divergence separates the arms.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from evals import sample
from evals.arms import build_arms
from evals.decode import Asked, Decoding, Plan
from evals.diff import compare
from evals.digest import digest_model
from evals.engine.prepare import prepare
from evals.grade import Grader
from evals.model_dir import inspect_model
from evals.tokens import TokenTable
from evals.types import Answer
from sandbox.bubblewrap import Bubblewrap
from tasks.folder import builtin_tasks
from tasks.variants import variants
from tests.fixtures.pictures import asked_about_colours

TASKS = {task.name: task for task in builtin_tasks()}
SIZE_LIMIT = 15_000_000
SEED = 20261130


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    """Two wordings of each task, one of them a variant, decoded twice by plain and by mtp@1."""
    model = inspect_model(sample.sample_dir())
    wanted = [(task, (task.prompts[0], *variants(task, 1, SEED))) for task in TASKS.values()]
    prepared = prepare(model, [prompt.text for _, prompts in wanted for prompt in prompts])
    rendered = iter(prepared.rendered)
    plan = Plan(
        model=model.path,
        arms=build_arms(digest_model(model), ks=(1,), versions=prepared.versions),
        repeats={"plain": 2, "mtp@1": 2},
        asked=tuple(
            Asked(task.name, prompt.id, next(rendered), task.max_new_tokens)
            for task, prompts in wanted
            for prompt in prompts
        ),
        stop_ids=TokenTable.load(model.path).stop_ids,
    )
    with Decoding(plan) as decoding:
        return list(decoding)


def firsts(answers: list[Answer], arm: str) -> Iterator[Answer]:
    return (a for a in answers if a.arm == arm and a.repeat == 0)


@pytest.mark.engine
def test_each_arm_repeats_itself_and_every_answer_ends_by_itself(answers: list[Answer]) -> None:
    assert len(answers) == 4 * 2 * 2 * 2
    assert [a.failure for a in answers if a.failure] == []
    seen: dict[tuple[str, str, str], tuple[int, ...]] = {}
    for answer in answers:
        assert answer.finish == "stop", (answer.task, answer.prompt, answer.text)
        assert seen.setdefault((answer.arm, answer.task, answer.prompt), answer.ids) == answer.ids


@pytest.mark.engine
def test_the_head_accepts_most_drafts_on_code_and_fewer_on_prose(answers: list[Answer]) -> None:
    def acceptance(*tasks: str) -> float:
        those = [a for a in firsts(answers, "mtp@1") if a.task in tasks]
        return sum(a.accepted or 0 for a in those) / sum(a.drafted or 0 for a in those)

    code = acceptance("csv", "iso8601")
    assert 0.75 <= code <= 0.95
    assert 0.4 <= acceptance("prose") < code


@pytest.mark.engine
def test_answers_are_short_and_mostly_right(answers: list[Answer]) -> None:
    plain = list(firsts(answers, "plain"))
    lengths = sorted(len(a.ids) for a in plain)
    assert 100 <= lengths[len(lengths) // 2] <= 320
    box = Bubblewrap()
    try:
        with Grader(TASKS.values(), box) as grader:
            grades = [future.result() for future in [grader.submit(answer) for answer in plain]]
    finally:
        box.close()
    cases = [case.outcome for grade in grades for case in grade.cases]
    assert "no_program" not in cases
    assert "infra" not in cases
    assert cases.count("pass") / len(cases) >= 0.7


@pytest.mark.engine
def test_what_separates_the_arms_is_a_divergence_and_no_fault(answers: list[Answer]) -> None:
    tokens = TokenTable.load(sample.sample_dir())
    mtp = {(a.task, a.prompt): a for a in firsts(answers, "mtp@1")}
    for plain in firsts(answers, "plain"):
        comparison = compare(plain, mtp[plain.task, plain.prompt], tokens)
        assert comparison.identical or comparison.divergence is not None


@pytest.mark.engine
def test_a_picture_is_answered_by_both_arms() -> None:
    for colour, answer in asked_about_colours(sample.sample_dir()):
        assert colour in answer


def test_both_graphs_ask_for_the_kv_cache_that_the_card_names() -> None:
    card = (sample.HERE / "MODEL_CARD.md").read_text(encoding="utf-8")
    for name in ("openvino_language_model", "openvino_mtp_model"):
        text = (sample.sample_dir() / f"{name}.xml").read_text(encoding="utf-8")
        options = text[text.rindex("<runtime_options>") :]
        found = re.search(r'KV_CACHE_PRECISION value="(\w+)"', options)
        assert found is not None
        assert f"KV_CACHE_PRECISION={found[1]}" in card


def test_the_sample_is_small_and_its_checksums_name_every_file() -> None:
    folder = sample.sample_dir()
    files = {p.relative_to(folder.parent).as_posix() for p in folder.rglob("*") if p.is_file()}
    lines = (sample.HERE / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert {line.split("  ")[1] for line in lines} == files
    assert sum((folder.parent / name).stat().st_size for name in files) < SIZE_LIMIT


def test_a_damaged_sample_is_refused(tmp_path: Path) -> None:
    copy = shutil.copytree(sample.HERE, tmp_path / "sample", ignore=shutil.ignore_patterns("__pycache__"))
    assert sample._checked(copy) == copy / "int4"
    sample._checked.cache_clear()
    weights = copy / "int4" / "openvino_mtp_model.bin"
    data = bytearray(weights.read_bytes())
    data[1000] ^= 1
    weights.write_bytes(data)
    with pytest.raises(sample.SampleDamaged, match=hashlib.sha256(data).hexdigest()):
        sample._checked(copy)
    weights.unlink()
    with pytest.raises(sample.SampleDamaged, match="nothing"):
        sample._checked(copy)


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_a_checkpoint_has_a_whole_head_in_the_width_that_every_export_takes(name: str, repo: Path) -> None:
    folder = repo / "tests" / "models" / name
    config = msgspec.json.decode((folder / "config.json").read_bytes())
    with (folder / "model.safetensors").open("rb") as file:
        header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")))
    head = {key: value["dtype"] for key, value in header.items() if key.startswith("mtp.")}
    assert config["text_config"]["mtp_num_hidden_layers"] == 1
    assert {"mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.self_attn.q_proj.weight"} <= head.keys()
    assert set(head.values()) == {"F32"}
    assert ("mtp.layers.0.mlp.experts.gate_up_proj" in head) == (name == "qwen3_5_moe")


def test_checkpoints_stay_under_their_limit(repo: Path) -> None:
    models = repo / "tests" / "models"
    assert sum(p.stat().st_size for p in models.rglob("*") if p.is_file()) < 60_000_000
