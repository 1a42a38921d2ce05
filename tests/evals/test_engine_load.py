"""The threat: with several requests in flight an answer lands in another's slot, or ids, steps and text disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals.engine.prepare import prepare
from evals.engine.process import EngineProcess
from evals.engine.protocol import Ask, Build, Done
from evals.model_dir import inspect_model
from evals.types import Failure

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def decoded(
    sample_dir: Path, known_texts: tuple[str, str]
) -> tuple[list[Done | Failure], list[Done | Failure], list[Done | Failure]]:
    """Three prompts of unequal length in flight, the same again, and each alone, by the speculative arm with K = 2."""
    prose, count = prepare(inspect_model(sample_dir), known_texts).rendered
    asks = [
        Ask(text=prose, max_new_tokens=24),
        Ask(text=count, max_new_tokens=40),
        Ask(text=prose, max_new_tokens=9),
    ]
    build = Build(
        model=str(sample_dir), head=str(sample_dir), method="mtp", k=2, device="CPU",
        properties={"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
        scheduler={"cache_size": 1, "enable_prefix_caching": False}, stop_ids=(),
    )  # fmt: skip
    engine = EngineProcess(build)
    try:
        engine.start()
        assert engine.ready() is None
        together, again = engine.ask_all(asks), engine.ask_all(asks)
        single = [engine.ask(ask.text, ask.max_new_tokens) for ask in asks]
    finally:
        engine.kill()
    return together, again, single


def done(replies: list[Done | Failure]) -> list[Done]:
    assert all(isinstance(reply, Done) for reply in replies), replies
    return [reply for reply in replies if isinstance(reply, Done)]


def test_each_answer_is_that_to_its_own_prompt(
    decoded: tuple[list[Done | Failure], list[Done | Failure], list[Done | Failure]],
) -> None:
    together, single = done(decoded[0]), done(decoded[2])
    assert [d.prompt_tokens for d in together] == [d.prompt_tokens for d in single]
    assert [d.ids[:5] for d in together] == [d.ids[:5] for d in single]
    assert [len(d.ids) <= most for d, most in zip(together, (24, 40, 9), strict=True)] == [True] * 3


def test_ids_steps_text_and_bill_agree(
    decoded: tuple[list[Done | Failure], list[Done | Failure], list[Done | Failure]],
) -> None:
    for reply in done(decoded[0]):
        assert sum(reply.steps) == len(reply.ids) == reply.reported_tokens
        assert reply.streamed == reply.text
        assert any(step > 1 for step in reply.steps)
        assert (reply.accepted, reply.drafted) == (None, None)
        assert reply.ttft_s and reply.decode_s


def test_the_same_batch_gives_the_same_answers(
    decoded: tuple[list[Done | Failure], list[Done | Failure], list[Done | Failure]],
) -> None:
    assert [d.ids for d in done(decoded[0])] == [d.ids for d in done(decoded[1])]
