"""The threat: margins read from a graph that isn't the served one, or missing without a word."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from evals.arms import build_arms
from evals.decode import Asked, Decoding, Plan
from evals.digest import digest_model
from evals.engine.prepare import prepare
from evals.engine.replay_protocol import Measure
from evals.margins import Margins, first_difference
from evals.measure import Yardsticks, measure
from evals.model_dir import ModelDir, inspect_model
from evals.replay import PagedReplay, StatefulReplay
from evals.tokens import TokenTable
from evals.types import Answer, Failure

K = 2
BUDGET = 48


@pytest.fixture(scope="module")
def model(sample_dir: Path) -> ModelDir:
    return inspect_model(sample_dir)


@pytest.fixture(scope="module")
def plan(model: ModelDir, known_texts: tuple[str, str]) -> Plan:
    rendered = prepare(model, known_texts).rendered
    return Plan(
        model=model.path,
        arms=build_arms(digest_model(model), ks=(K,)),
        repeats={},
        asked=tuple(Asked("t", str(n), text, BUDGET) for n, text in enumerate(rendered)),
        stop_ids=TokenTable.load(model.path).stop_ids,
    )


@pytest.fixture(scope="module")
def pairs(plan: Plan) -> list[tuple[Answer, Answer]]:
    with Decoding(plan) as decoding:
        answers = {(a.arm, a.prompt): a for a in decoding}
    return [(answers["plain", p], answers[f"mtp@{K}", p]) for p in ("0", "1")]


@pytest.fixture(scope="module")
def paged(model: ModelDir) -> PagedReplay:
    return PagedReplay(model.path, model.target, "CPU", {}, batch=4096)


def spoiled(pair: tuple[Answer, Answer], at: int) -> tuple[Answer, Answer]:
    """The arm's answer is plain's, with a token put in that has no business there."""
    ids = list(pair[0].ids)
    ids[at] = next(i for i in range(20, 400) if i != ids[at] and i not in ids[max(0, at - 3) : at + 3])
    return pair[0], replace(pair[1], ids=tuple(ids), steps=())


@pytest.mark.engine
def test_a_token_put_in_by_force_lies_far_from_the_best(
    plan: Plan, model: ModelDir, pairs: list[tuple[Answer, Answer]]
) -> None:
    wrong = [spoiled(pair, 10) for pair in pairs]
    with Margins(plan, model, [*wrong, (pairs[0][0], pairs[0][0])]) as margins:
        assert margins.planned == 2
        found = list(margins)
        assert margins.problem is None
    assert [m.prompt for m in found] == ["0", "1"]
    for margin in found:
        assert (margin.token_index, margin.source, margin.reproduced) == (10, "paged", True)
        assert margin.rank > 1
        assert margin.gap > 4 * margin.noise["max"]
        assert margin.gap_at_verify_width is not None and margin.gap_at_verify_width > margin.noise["max"]
        assert margin.rescored_max_gap is not None and margin.rescored_max_gap >= margin.gap
        assert 0 <= margin.noise["p50"] <= margin.noise["p99"] <= margin.noise["max"]


@pytest.mark.engine
def test_the_replay_gives_the_arms_own_tokens(
    model: ModelDir, paged: PagedReplay, plan: Plan, pairs: list[tuple[Answer, Answer]]
) -> None:
    import openvino_genai

    split = PagedReplay(model.path, model.target, "CPU", {}, batch=7)
    tokenizer = openvino_genai.Tokenizer(str(model.path))
    for asked, (base, _) in zip(plan.asked, pairs, strict=True):
        prompt = [int(i) for i in tokenizer.encode(asked.text).input_ids.data[0]]
        assert len(prompt) == base.prompt_tokens
        rows = [paged.start(prompt)[-1]]
        rows += [paged.step([token], 1)[-1] for token in base.ids[:-1]]
        assert [int(row.argmax()) for row in rows] == list(base.ids)
        assert int(split.start(prompt)[-1].argmax()) == base.ids[0]


@pytest.mark.engine
def test_a_rejected_draft_is_undone(model: ModelDir) -> None:
    replay = PagedReplay(model.path, model.target, "CPU", {"KV_CACHE_PRECISION": "f32"}, batch=4096)
    prompt = list(range(20, 40))
    replay.start(prompt)
    replay.step([50, 51, 52], 1)
    after_rejection = replay.step([60, 61, 62], 2)[0]
    replay.start(prompt)
    replay.step([50, 99, 98], 1)
    assert replay.step([60, 61, 62], 2)[0] == pytest.approx(after_rejection, abs=1e-4)
    replay.start(prompt)
    replay.step([50, 51, 52], 3)
    assert abs(replay.step([60, 61, 62], 2)[0] - after_rejection).max() > 0.1


@pytest.mark.engine
def test_the_stateful_graph_explains_where_replay_cannot_be_had(
    model: ModelDir, paged: PagedReplay, plan: Plan, pairs: list[tuple[Answer, Answer]]
) -> None:
    import openvino_genai

    base, other = spoiled(pairs[0], 10)
    tokenizer = openvino_genai.Tokenizer(str(model.path))
    prompt = [int(i) for i in tokenizer.encode(plan.asked[0].text).input_ids.data[0]]
    order = Measure(
        text="", prompt_tokens=len(prompt), base_ids=base.ids, other_ids=other.ids, other_steps=(), k=K
    )  # fmt: skip
    by_paged = measure(paged, Yardsticks(), prompt, order)
    by_state = measure(StatefulReplay(model.path, model.target, "CPU", {}), Yardsticks(), prompt, order)
    assert (by_paged.source, by_state.source) == ("paged", "stateful")
    assert by_state.gap == pytest.approx(by_paged.gap, rel=0.2)


def answer(ids: tuple[int, ...], arm: str = "plain", **fields: object) -> Answer:
    return Answer(
        arm=arm, task="t", prompt="0", repeat=0, prompt_sha256="", prompt_tokens=3, max_new_tokens=9, ids=ids, **fields  # type: ignore[arg-type]
    )  # fmt: skip


def test_only_answers_that_part_by_a_token_are_measured() -> None:
    failed = answer((), failure=Failure(kind="crash", message=""))
    assert first_difference(answer((1, 2, 3)), answer((1, 9))) == 1
    for other in (answer((1, 2, 3)), answer((1, 2)), answer((1, 2, 3, 4)), failed):
        assert first_difference(answer((1, 2, 3)), other) is None
        assert first_difference(other, answer((1, 2, 3))) is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        (
            'import os,sys; os.write(int(sys.argv[2]), b\'{"type":"problem","message":"no such graph"}\\n\')',
            "no such",
        ),
        (
            "import os,sys; os.write(int(sys.argv[2]), b'garbage\\n'); import time; time.sleep(60)",
            "malformed|sent",
        ),
    ],
    ids=["crash", "problem", "garbage"],
)
def test_a_replay_that_fails_is_a_problem_and_no_exception(
    code: str, words: str, plan: Plan, model: ModelDir
) -> None:
    pair = (answer((1, 2)), answer((1, 3), arm=f"mtp@{K}"))
    with Margins(plan, model, [pair], command=(sys.executable, "-c", code)) as margins:
        assert list(margins) == []
        assert margins.problem is not None
        assert re.search(words, margins.problem)


@pytest.mark.engine
def test_a_pair_that_cannot_be_replayed_leaves_the_others(
    plan: Plan, model: ModelDir, pairs: list[tuple[Answer, Answer]]
) -> None:
    outside = replace(pairs[0][1], ids=(*pairs[0][1].ids[:5], 10**6), steps=())
    with Margins(plan, model, [(pairs[0][0], outside), spoiled(pairs[1], 4)]) as margins:
        found = list(margins)
        assert margins.problem is not None and "token ids below" in margins.problem
    assert [(m.prompt, m.token_index) for m in found] == [("1", 4)]


@pytest.mark.engine
@pytest.mark.parametrize("length", [70, 64])  # inside a block of the cache, and at the end of one
def test_a_prompt_gone_back_to_gives_the_very_same_logits(
    paged: PagedReplay, model: ModelDir, length: int
) -> None:
    """A prompt at depth is fed once: what steps wrote over it must be put back, or later margins would be noise."""
    prompt = [17 + i * 7 % 300 for i in range(length)]
    other = [19 + i * 5 % 300 for i in range(40)]

    def rows() -> list[np.ndarray]:
        first = paged.start(prompt)
        return [first, paged.step([40, 41, 42], 1), paged.step([43], 1), paged.step([44, 45], 2)]

    fresh = PagedReplay(model.path, model.target, "CPU", {}, batch=4096)
    paged.start(other)
    once, again = rows(), rows()
    fresh_first = fresh.start(prompt)
    assert np.array_equal(fresh_first, once[0])
    for one, two in zip(once, again, strict=True):
        assert np.array_equal(one, two)
