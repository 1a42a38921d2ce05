"""The threat: records that lie or are doubled, a run too large for memory, an answer compared with the wrong one."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from evals.types import Answer
from gate.gathering import EvidenceError, collect


def test_answers_arms_and_grades_find_their_places(scene):
    scene.add_arm("control@1", "control", 1, control_seed=7)
    scene.diverge("w2", arm="control@1")
    (item,) = scene.run().evidence
    assert (item.plain.arm.name, item.spec.arm.name) == ("plain", "mtp@1")
    assert [c.arm.name for c in item.controls] == ["control@1"]
    assert not item.controls[0].comparisons["w2"].identical
    assert item.spec.comparisons["w2"].identical
    assert (len(item.plain.answers), len(item.plain.repeats), len(item.spec.grades)) == (8, 4, 4)


def test_order_of_the_records_does_not_matter(scene):
    scene.change("w2", arm="plain", repeat=1, text="something else")
    before = scene.verdict()
    scene.answers_by = dict(reversed(scene.answers_by.items()))
    assert scene.verdict() == before


def test_an_answer_recorded_twice_counts_once(scene):
    answers = list(scene.answers())
    scene.answers = lambda: iter([*answers, *answers])
    assert scene.verdict().decision == "serve"
    assert scene.codes() == {}


@pytest.mark.parametrize(("arm", "code"), [("mtp@1", "spec-unrepeatable"), ("plain", "plain-unrepeatable")])
@pytest.mark.parametrize("repeats", [1, 2])
def test_an_answer_recorded_twice_in_two_texts_contradicts_itself(scene, arm, code, repeats):
    if arm == "mtp@1":
        scene.repeats[arm] = repeats
        scene.answers_by = {k: a for k, a in scene.answers_by.items() if k[0] != arm or k[3] < repeats}
    again = scene.answers_by[arm, "csv", "w2", 0]
    answers = [*scene.answers(), msgspec.structs.replace(again, ids=(65,), text="A")]
    scene.answers = lambda: iter(answers)
    assert scene.verdict().reasons == (code,)


def test_a_run_without_a_plain_arm_is_refused(scene):
    del scene.arms["plain"]
    with pytest.raises(EvidenceError, match="expected a plain arm"):
        scene.run()


def test_a_task_that_was_not_given_is_named(scene):
    with pytest.raises(EvidenceError, match=r"expected the task 'csv'.*--tasks"):
        collect(scene, {}, lambda base, other: None)


def test_failed_answers_are_not_compared(scene):
    from evals.types import Failure

    scene.change("w1", ids=(), text="", failure=Failure(kind="crash", message=""))
    assert "w1" not in scene.run().evidence[0].spec.comparisons


def test_every_comparison_is_given_once(scene):
    scene.add_arm("mtp@3", "mtp", 3, repeats=2)
    keys = [(c.arm, c.task, c.prompt, c.repeat) for c in scene.run().comparisons()]
    assert len(keys) == len(set(keys)) == 4 * (1 + 2 + 2)


def test_little_is_kept_of_an_answer(scene):
    """Answers stream: what is kept of one is far less than the answer (600 tokens here, about 30 KB decoded)."""
    prompts = [f"p{i}" for i in range(60)]
    scene.add_task("big", prompts=["p0"])
    task = msgspec.structs.replace(
        scene.tasks["big"], prompts=tuple(type(scene.tasks["big"].prompts[0])(p, p) for p in prompts)
    )
    scene.tasks = {"big": task}
    template = scene.answers_by["plain", "big", "p0", 0]
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Answer)
    ids = tuple(range(1000, 1600))
    row = encoder.encode(msgspec.structs.replace(template, ids=ids, text="x" * 1800, streamed="x" * 1800))

    def answers():
        for prompt in prompts:
            for arm in ("plain", "mtp@1"):
                for repeat in (0, 1):
                    yield msgspec.structs.replace(
                        decoder.decode(row), arm=arm, prompt=prompt, prompt_sha256=prompt, repeat=repeat
                    )

    scene.answers = answers
    scene.grades_by = {}
    tracemalloc.start()
    run = scene.run()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(run.evidence[0].spec.answers) == 120
    assert kept < 240 * 6_000
    assert peak - kept < 60 * 2 * 40_000
