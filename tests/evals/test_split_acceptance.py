"""The threat: an engine of ours that drafts otherwise than the served one, so that its acceptance says nothing."""

from __future__ import annotations

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
from tests.evals.split_dirs import split_sample

pytestmark = pytest.mark.engine
F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
KS = (1, 3)
PROMPTS = {"count": 4, "prose": 4, "csv": 1}
"""Task → how many of its prompts are decoded: a few hundred drafts for each K."""
BUDGETS = {"csv": 60}
"""Task → budget, where it is to end an answer; the others end by themselves."""


@pytest.fixture(scope="module")
def answers(
    sample_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[tuple[str, str], Answer]]:
    """Engine → arm and prompt → answer, at f32: the exported head, and the same head in the split layout."""
    split = split_sample(sample_dir, tmp_path_factory.mktemp("split") / "m")
    wanted = [
        (p.text, BUDGETS.get(task.name, 300))
        for task in builtin_tasks()
        for p in task.prompts[: PROMPTS.get(task.name, 0)]
    ]
    rendered = prepare(inspect_model(split), [text for text, _ in wanted]).rendered
    asked = [
        Asked("t", f"{n}", text, budget)
        for n, (text, (_, budget)) in enumerate(zip(rendered, wanted, strict=True))
    ]
    found = {}
    for engine, directory in ((GENAI, sample_dir), (SPLIT, split)):
        model = inspect_model(directory)
        plan = Plan(
            model=directory,
            arms=build_arms(digest_model(model), ks=KS, properties=F32, engine=engine),
            repeats={},
            asked=tuple(asked),
            stop_ids=TokenTable.load(directory).stop_ids,
        )
        with Decoding(plan) as decoding:
            found[engine] = {(a.arm, a.prompt): a for a in decoding}
    return found


def test_plain_is_the_served_engines_plain_at_f32(
    answers: dict[str, dict[tuple[str, str], Answer]],
) -> None:
    for key, answer in answers[GENAI].items():
        assert answer.failure is None
        if key[0] == "plain":
            other = answers[SPLIT][key]
            assert (other.ids, other.text, other.prompt_tokens) == (
                answer.ids,
                answer.text,
                answer.prompt_tokens,
            )


@pytest.mark.parametrize("k", KS)
def test_acceptance_is_within_a_point_of_the_served_engines(
    k: int, answers: dict[str, dict[tuple[str, str], Answer]]
) -> None:
    def rate(engine: str) -> float:
        ours = [a for (arm, _), a in answers[engine].items() if arm == f"mtp@{k}"]
        assert sum(a.drafted or 0 for a in ours) > 300
        return sum(a.accepted or 0 for a in ours) / sum(a.drafted or 0 for a in ours)

    assert rate(SPLIT) == pytest.approx(rate(GENAI), abs=0.01)
    assert rate(SPLIT) > 0.3


def test_where_both_take_the_same_steps_both_count_the_same(
    answers: dict[str, dict[tuple[str, str], Answer]],
) -> None:
    """What ends an answer, a stop or the budget, and whether inside a draft, is counted alike."""
    pairs = [(answers[SPLIT][key], answer) for key, answer in answers[GENAI].items() if key[0] != "plain"]
    same = [(ours, theirs) for ours, theirs in pairs if ours.steps == theirs.steps]
    assert len(same) > len(pairs) // 2
    assert {ours.finish for ours, _ in same} == {"stop", "length"}
    for ours, theirs in same:
        assert (ours.accepted, ours.drafted) == (theirs.accepted, theirs.drafted)
