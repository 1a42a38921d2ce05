"""The threat: an answer that was planned and is missing in silence, or a run that one engine's crash ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from evals.arms import build_arms
from evals.decode import Asked, Decoding, Plan
from evals.digest import ModelDigests
from evals.engine.process import Patience
from evals.types import Answer

DIGESTS = ModelDigests(whole="w", target="t", head="h", files={})


def plan(
    tmp_path: Path, *words: str, device: str = "CPU", ks: tuple[int, ...] = (1,), plain: int = 2
) -> Plan:
    return Plan(
        model=tmp_path,
        arms=build_arms(DIGESTS, ks=ks, device=device),
        repeats={"plain": plain},
        asked=tuple(Asked("t", str(n), word, 3) for n, word in enumerate(words)),
        stop_ids=frozenset({2}),
    )


@pytest.fixture
def fake(repo: Path) -> dict[str, Any]:
    return {"command": (sys.executable, "-P", str(repo / "tests" / "fixtures" / "fake_worker.py"))}


def run(plan: Plan, options: dict[str, Any]) -> list[Answer]:
    with Decoding(plan, **options) as decoding:
        answers = list(decoding)
        assert decoding.done_count == len(answers)
    return answers


def order(answers: list[Answer]) -> list[tuple[str, str, int]]:
    return [(a.prompt, a.arm, a.repeat) for a in answers]


def starts(tmp_path: Path, method: str) -> int:
    return int((tmp_path / f"starts-{method}").read_text())


def test_arms_are_interleaved_prompt_by_prompt_and_none_is_always_first(
    tmp_path: Path, fake: dict[str, Any]
) -> None:
    answers = run(plan(tmp_path, "a", "b"), fake | {"sequential": False})
    assert order(answers) == [
        ("0", "plain", 0),
        ("0", "mtp@1", 0),
        ("0", "plain", 1),
        ("1", "mtp@1", 0),
        ("1", "plain", 0),
        ("1", "plain", 1),
    ]
    assert [a.order for a in answers if a.arm == "plain"] == [0, 1, 2, 3]
    assert all(a.failure is None and a.finish == "stop" and a.prompt_tokens == 4 for a in answers)


def test_one_engine_at_a_time_where_asked(tmp_path: Path, fake: dict[str, Any]) -> None:
    with Decoding(plan(tmp_path, "a", "b"), sequential=True, **fake) as decoding:
        alive = []
        answers = []
        for answer in decoding:
            answers.append(answer)
            alive.append(sum("fake_worker" in " ".join(c.cmdline()) for c in psutil.Process().children()))
    assert [a.arm for a in answers] == ["plain"] * 4 + ["mtp@1"] * 2
    assert alive == [1] * 6


def test_a_device_other_than_the_cpu_runs_one_arm_at_a_time(tmp_path: Path) -> None:
    assert Decoding(plan(tmp_path, "a", device="GPU.0")).sequential
    assert not Decoding(plan(tmp_path, "a")).sequential
    with (tmp_path / "openvino_language_model.bin").open("wb") as file:
        file.truncate(psutil.virtual_memory().total)
    assert Decoding(plan(tmp_path, "a")).sequential


def test_the_finish_follows_from_the_ids(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "hello", "long", plain=1), fake)
    assert [(a.prompt, a.finish) for a in answers if a.arm == "plain"] == [("0", "stop"), ("1", "length")]


def test_every_planned_answer_is_there_though_an_engine_crashes(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "a", "segv", "b", plain=1), fake)
    assert len(answers) == 6
    failed = {(a.arm, a.prompt): a.failure for a in answers if a.failure}
    assert set(failed) == {("plain", "1"), ("mtp@1", "1")}
    assert all(f.kind == "crash" and f.signal == 11 for f in failed.values())
    assert starts(tmp_path, "plain") == 2


def test_restarts_are_bounded_and_what_is_left_is_named(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, *["segv"] * 5, "a", plain=1), fake)
    plain = [a for a in answers if a.arm == "plain"]
    assert all(a.failure is not None and a.failure.kind == "crash" for a in plain)
    assert [a.failure.message.startswith("not asked") for a in plain if a.failure] == [False] * 3 + [True] * 3
    assert starts(tmp_path, "plain") == 3


def test_a_crash_at_start_is_recorded_and_tried_again(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "a", "b", device="CPU.segv-first", plain=1), fake)
    mtp = [a for a in answers if a.arm == "mtp@1"]
    assert mtp[0].failure is not None
    assert (mtp[0].failure.stage, mtp[0].failure.signal) == ("build", 11)
    assert mtp[1].failure is None
    assert (starts(tmp_path, "mtp"), starts(tmp_path, "plain")) == (2, 2)


def test_an_error_at_build_is_each_answers_and_not_tried_again(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "a", "b", device="CPU.error"), fake)
    assert len(answers) == 6
    assert all(a.failure and a.failure.stage == "build" and a.failure.kind == "error" for a in answers)
    assert starts(tmp_path, "plain") == 1


def test_an_error_for_one_prompt_leaves_the_others(tmp_path: Path, fake: dict[str, Any]) -> None:
    answers = run(plan(tmp_path, "error", "a", "refused", "b", plain=1), fake)
    assert [
        a.failure.kind if a.failure else None
        for a in sorted(answers, key=lambda a: a.key)
        if a.arm == "plain"
    ] == [
        "error",
        None,
        "refused",
        None,
    ]
    assert starts(tmp_path, "plain") == 1


def test_a_hang_is_an_outcome(tmp_path: Path, fake: dict[str, Any]) -> None:
    quick = Patience(first_s=1.0, least_s=1.0, factor=0.0)
    answers = run(plan(tmp_path, "hang", "a", plain=1), fake | {"patience": quick})
    assert [a.failure.kind if a.failure else None for a in answers if a.arm == "plain"] == ["hang", None]


def test_what_is_done_is_not_decoded_again(tmp_path: Path, fake: dict[str, Any]) -> None:
    whole = run(plan(tmp_path, "a", "b"), fake)
    rest = run(plan(tmp_path, "a", "b"), fake | {"done": {a.key for a in whole[:4]}})
    assert {a.key for a in rest} == {a.key for a in whole[4:]}
    with Decoding(plan(tmp_path, "a", "b"), done={a.key for a in whole}, **fake) as decoding:
        assert (decoding.planned, list(decoding)) == (0, [])
    assert starts(tmp_path, "mtp") == 1


def test_a_budget_stops_in_time_with_what_it_has(tmp_path: Path, fake: dict[str, Any]) -> None:
    with Decoding(plan(tmp_path, "a", "hang", "b", plain=1), budget_s=6.0, **fake) as decoding:
        answers = list(decoding)
        assert decoding.stopped == "budget"
    assert [a.prompt for a in answers] == ["0", "0"]
    assert all(a.failure is None for a in answers)


def test_an_answer_that_would_overrun_the_budget_is_not_begun(tmp_path: Path, fake: dict[str, Any]) -> None:
    with Decoding(
        plan(tmp_path, "slow 1.5", "slow 1.5", plain=1), budget_s=10.0, sequential=True, **fake
    ) as decoding:
        answers = list(decoding)
        assert decoding.stopped == "budget"
    assert len(answers) == 1
    assert (tmp_path / "asked").read_text() == "slow\n"


def test_the_rest_is_estimated_from_the_first_answers(tmp_path: Path, fake: dict[str, Any]) -> None:
    with Decoding(plan(tmp_path, "slow 0.1", "slow 0.1", plain=1), **fake) as decoding:
        assert decoding.remaining_s is None
        seen = [decoding.remaining_s for _ in decoding]
        assert seen[0] is not None
        assert seen[-1] == 0
        assert decoding.engine_s >= decoding.decode_s > 0.4 * 4 * 0.9


def test_engines_end_with_the_last_answer(tmp_path: Path, fake: dict[str, Any]) -> None:
    with Decoding(plan(tmp_path, "a"), **fake) as decoding:
        list(decoding)
        assert not any("fake_worker" in " ".join(p.cmdline()) for p in psutil.Process().children())


def test_leaving_early_ends_the_engines(tmp_path: Path, fake: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt), Decoding(plan(tmp_path, "a", "b"), **fake) as decoding:
        for _ in decoding:
            engines = psutil.Process().children()
            raise KeyboardInterrupt
    assert engines
    assert not any(
        p.is_running() and "fake_worker" in " ".join(p.cmdline()) for p in psutil.Process().children()
    )
