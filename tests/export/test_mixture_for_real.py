"""The threat: a mixture of experts that exports, or is rebuilt, and then can't be gated, or drafts otherwise.

Its head as exported and as rebuilt, both engines, and the gate: 8 experts, of which 2 are chosen for a token.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.arms import build_arms
from evals.decode import Asked, Decoding, Plan
from evals.digest import digest_model
from evals.engine.prepare import prepare
from evals.engines import GENAI, SPLIT
from evals.model_dir import inspect_model
from evals.tokens import TokenTable
from evals.types import Answer
from tasks.folder import builtin_tasks
from tests.export.sources import DENSE, MIXED, Checkpoints, Exported, Source, command

pytestmark = [pytest.mark.timeout(900), pytest.mark.engine]
F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
KS = (1, 3)


@pytest.mark.parametrize("layout", ["exported", "split"])
def test_a_mixture_goes_from_its_checkpoint_to_a_verdict(
    layout: str, exported: Exported, checkpoint_of: Checkpoints, tmp_path: Path
) -> None:
    model, engine = exported(MIXED, "int4"), GENAI
    if layout == "split":
        built, engine = tmp_path / "built", SPLIT
        told = command(
            "head", "build", "--checkpoint", checkpoint_of(MIXED), "--base", model, "--out", built,
            "--weight-format", "int4",
        )  # fmt: skip
        assert "(int4, 8 experts)" in told
        model = built
    found = json.loads(command("inspect", "--model", model, "--json", "--device", "CPU"))
    assert found["layout"] == layout
    (experts,) = (part["experts"] for part in found["parts"] if part["role"] == "head")
    assert (experts["count"], experts["chosen"], experts["read"]) == (8, 2, "chosen")
    run = tmp_path / "run"
    command("check", "--model", model, "--task", "count", "--no-state-probe", "--out", run, codes=(0, 1))
    arms = json.loads((run / "manifest.json").read_text())["arms"]
    assert {arm["name"]: arm["engine"] for arm in arms} == dict.fromkeys(
        ("plain", "mtp@1", "control@1"), engine
    )
    assert json.loads((run / "verdict.json").read_text())["decision"] in ("serve", "do_not_serve")


def decoded(model: Path, engine: str) -> dict[tuple[str, str], Answer]:
    """Arm and prompt → answer, at f32: five prompts that end by themselves, one that its budget ends."""
    wanted = [
        (prompt.text, 60 if task.name == "csv" else 300)
        for task in builtin_tasks()
        for prompt in task.prompts[: {"count": 3, "prose": 2, "csv": 1}.get(task.name, 0)]
    ]
    found = inspect_model(model)
    rendered = prepare(found, [text for text, _ in wanted]).rendered
    plan = Plan(
        model=model,
        arms=build_arms(digest_model(found), ks=KS, properties=F32, engine=engine),
        repeats={},
        asked=tuple(
            Asked("t", f"{n}", text, budget)
            for n, (text, (_, budget)) in enumerate(zip(rendered, wanted, strict=True))
        ),
        stop_ids=TokenTable.load(model).stop_ids,
    )
    with Decoding(plan) as decoding:
        return {(answer.arm, answer.prompt): answer for answer in decoding}


def rate(answers: dict[tuple[str, str], Answer], k: int) -> float:
    those = [answer for (arm, _), answer in answers.items() if arm == f"mtp@{k}"]
    assert [answer.failure for answer in those] == [None] * 6
    assert sum(answer.drafted or 0 for answer in those) > 300
    return sum(answer.accepted or 0 for answer in those) / sum(answer.drafted or 0 for answer in those)


@pytest.mark.parametrize("source", [DENSE, MIXED], ids=str)
def test_exported_and_rebuilt_head_are_accepted_alike_by_either_engine(
    source: Source, exported: Exported, checkpoint_of: Checkpoints, tmp_path: Path
) -> None:
    """At f32, where the arms of both engines give the same answers: exported head on both, and the rebuilt one."""
    base, built = exported(source, "fp32"), tmp_path / "built"
    command(
        "head", "build", "--checkpoint", checkpoint_of(source), "--base", base, "--out", built,
        "--weight-format", "fp32",
    )  # fmt: skip
    served, ours, rebuilt = decoded(base, GENAI), decoded(base, SPLIT), decoded(built, SPLIT)
    for key, answer in served.items():
        assert ours[key].ids == rebuilt[key].ids == answer.ids, key
    for k in KS:
        assert rate(ours, k) == pytest.approx(rate(served, k), abs=0.01)
        assert rate(rebuilt, k) == pytest.approx(rate(served, k), abs=0.01)
        assert rate(rebuilt, k) > 0.3
