"""The threat: a head that fails under load and not alone; and its twin, blaming the head for what the batch does."""

from __future__ import annotations

import msgspec
import pytest

from gate.speeds import speed_facts

PROSE = (
    "The keeper of the mill lived above a valley that nobody had measured. Each spring he walked down to the bridge, "
    "counted its planks, and wrote their number into a book bound in grey cloth. One year the river took four of them, "
    "so he carved new ones from an elm that lightning had split, and waited for somebody to notice."
)
LOADED = ("plain/n4", "mtp@1/n4")


@pytest.fixture
def loaded(make_scene):
    """csv and prose, alone and with four in flight: two prompts of each in a batch."""
    scene = make_scene()
    scene.add_task("prose")
    for name in ("plain", "mtp@1"):
        arm = scene.arms[name]
        scene.add_arm(f"{name}/n4", arm.method, arm.k, 2, concurrency=4, batch_seed=0, engine="openvino-genai",
                      head_digest=arm.head_digest)  # fmt: skip
    for arm in scene.arms:
        scene.change_all(arm=arm, task="prose", text=PROSE)
    for name in LOADED:
        for task in scene.tasks:
            for n, prompt in enumerate(scene.tasks[task].prompts):
                counters = (
                    {}
                    if name == "plain/n4"
                    else {"accepted": None, "drafted": None, "steps": steps(scene, task)}
                )
                scene.change(prompt.id, arm=name, task=task, batch=n // 2, **counters)
    return scene


def steps(scene, task):
    tokens = len(scene.answers_by["plain", task, "w1", 0].ids)
    return (1, *(2,) * ((tokens - 1) // 2), *(1,) * ((tokens - 1) % 2))


def verdict_of(scene, arm, task="csv"):
    return next(t for t in scene.verdict().tasks if (t.arm, t.task) == (arm, task))


def test_each_load_has_its_own_verdict(loaded):
    assert {(t.task, t.arm): t.decision for t in loaded.verdict().tasks} == {
        (task, arm): "serve" for task in ("csv", "prose") for arm in ("mtp@1", "mtp@1/n4")
    }


def test_what_the_batch_changes_is_noted_and_not_blamed_on_the_head(loaded):
    for arm in LOADED:
        loaded.diverge("w1", arm=arm)
        loaded.grade("w1", {"one": "fail"}, arm=arm)
    loaded.change("w1", arm="mtp@1/n4", steps=(1, *(2,) * 47))  # as many tokens as that answer has
    assert loaded.verdict().decision == "serve"
    assert verdict_of(loaded, "mtp@1/n4").identical == 4
    found = loaded.found("batch-changes-plain")
    assert (found.severity, found.arm, found.evidence["differing"]) == ("note", "plain/n4", 1)


def test_what_the_head_loses_under_load_blocks_there(loaded):
    loaded.diverge("w1", arm="mtp@1/n4")
    loaded.grade("w1", {"one": "fail"}, arm="mtp@1/n4")
    assert verdict_of(loaded, "mtp@1").decision == "serve"
    assert verdict_of(loaded, "mtp@1/n4").decision == "do_not_serve"
    assert loaded.verdict().decision == "do_not_serve"


def test_plain_that_does_not_repeat_itself_under_load_says_nothing_of_the_head(loaded):
    text = loaded.answers_by["plain", "csv", "w1", 0].text
    loaded.change("w1", arm="plain/n4", repeat=1, text=text + " and more")
    assert verdict_of(loaded, "mtp@1/n4").reasons == ("plain-unrepeatable",)
    assert verdict_of(loaded, "mtp@1").decision == "serve"


@pytest.mark.parametrize("how", ["whole", "tail"])
def test_an_answer_that_went_to_the_wrong_slot(loaded, how):
    csv = loaded.answers_by["plain", "csv", "w1", 0].text
    loaded.change("w2", arm="mtp@1/n4", task="prose", text=csv if how == "whole" else PROSE[:50] + csv)
    found = [f for f in loaded.verdict().findings if f.code == "crossed-answers"]
    assert {(f.severity, f.arm, f.prompt, f.evidence["other_task"], f.evidence["how"]) for f in found} == {
        ("block", "mtp@1/n4", "w2", "csv", how)
    }
    assert "crossed-answers" in verdict_of(loaded, "mtp@1/n4", "prose").reasons


def test_a_chunk_that_went_to_the_wrong_client(loaded):
    csv = loaded.answers_by["plain", "csv", "w1", 0].text
    loaded.change("w1", arm="mtp@1/n4", task="prose", text=PROSE[:90] + PROSE[99:])
    loaded.change("w2", arm="mtp@1/n4", text=csv[:30] + PROSE[90:99] + csv[30:])
    found = {(f.prompt, f.evidence["how"], f.evidence["other_prompt"], f.severity)
             for f in loaded.verdict().findings if f.code == "crossed-answers"}  # fmt: skip
    assert found == {("w1", "lost", "w2", "block"), ("w2", "received", "w1", "block")}


def test_a_chunk_that_only_one_answer_lacks_went_nowhere(loaded):
    loaded.change("w1", arm="mtp@1/n4", task="prose", text=PROSE[:90] + PROSE[99:])
    assert "crossed-answers" not in loaded.codes()


def test_an_answer_of_another_batch_is_no_crossed_one(loaded):
    other = "".join(f"    row_{n} = text.split(',')[{n}]\n" for n in range(9))
    for arm in loaded.arms:
        loaded.change("w4", arm=arm, task="csv", text=other)
    loaded.change("w1", arm="mtp@1/n4", task="prose", text=other)
    assert "crossed-answers" not in loaded.codes()
    loaded.change("w3", arm="mtp@1/n4", task="prose", text=other)
    assert "crossed-answers" in loaded.codes()


def test_two_wordings_of_one_task_may_have_one_answer_unless_it_is_exact(loaded):
    other = "".join(f"    row_{n} = text.split(',')[{n}]\n" for n in range(9))
    for arm in loaded.arms:
        loaded.change("w2", arm=arm, text=other)
    loaded.change("w1", arm="mtp@1/n4", text=other)
    assert "crossed-answers" not in loaded.codes()
    loaded.tasks["csv"] = msgspec.structs.replace(loaded.tasks["csv"], kind="exact")
    assert loaded.codes()["crossed-answers"] == "block"


def test_a_long_piece_in_common_after_a_near_tie_is_honest(loaded):
    piece = loaded.answers_by["plain", "prose", "w1", 0].text[20:]
    loaded.change("w1", arm="mtp@1/n4", text="def parse(text):\n" + piece)
    assert "crossed-answers" in loaded.codes()
    loaded.margin("w1", arm="mtp@1/n4")
    assert "crossed-answers" not in loaded.codes()


def test_where_plain_is_crossed_nothing_can_be_said(loaded):
    csv = loaded.answers_by["plain", "csv", "w1", 0].text
    for arm in LOADED:
        loaded.change("w1", arm=arm, task="prose", text=csv)
    verdict = verdict_of(loaded, "mtp@1/n4", "prose")
    assert (verdict.decision, verdict.reasons) == ("inconclusive", ("crossed-answers",))


def test_acceptance_is_read_off_the_steps(loaded):
    (_, arm, *_) = verdict_of(loaded, "mtp@1/n4").arms
    tokens = len(loaded.answers_by["plain", "csv", "w1", 0].ids)
    assert (arm.accepted, arm.drafted) == (4 * ((tokens - 1) // 2), 4 * (tokens // 2))


@pytest.mark.parametrize(
    ("steps", "counted"),
    [((1, 1, 1, 1, 1, 1, 1, 1), (0, 11)), ((1, 1, 2, 3, 1), (3, 6))],
    ids=["none accepted", "some accepted"],
)
def test_the_last_steps_draft_no_more_than_the_budget_leaves(loaded, steps, counted):
    """As openvino-genai counts the same two answers where each is alone (K = 2, 8 tokens allowed)."""
    loaded.arms["mtp@1/n4"] = msgspec.structs.replace(loaded.arms["mtp@1/n4"], k=2)
    loaded.change("w1", arm="mtp@1/n4", ids=(65,) * 8, text="A" * 8, steps=steps, max_new_tokens=8)
    item = next(i for i in loaded.run().evidence if (i.spec.arm.name, i.task) == ("mtp@1/n4", "csv"))
    answer = item.spec.by_prompt()["w1"]
    assert (answer.accepted, answer.drafted) == counted


def test_without_a_step_of_several_tokens_nothing_was_exercised(loaded):
    for task in loaded.tasks:
        tokens = len(loaded.answers_by["plain", task, "w1", 0].ids)
        loaded.change_all(arm="mtp@1/n4", task=task, steps=(1,) * tokens)
    verdict = verdict_of(loaded, "mtp@1/n4")
    assert (verdict.decision, verdict.reasons) == ("inconclusive", ("not-exercised",))


def test_a_head_that_dies_under_load_is_named(loaded):
    tokens = len(loaded.answers_by["plain", "csv", "w1", 0].ids)
    loaded.change_all(arm="mtp@1/n4", steps=(1,) * tokens)
    assert verdict_of(loaded, "mtp@1/n4").reasons == ("dead-head",)
    assert verdict_of(loaded, "mtp@1/n4", "prose").decision == "serve"


def test_counters_of_a_served_arm_are_never_made_up(loaded):
    for name in LOADED:
        loaded.arms[name] = msgspec.structs.replace(loaded.arms[name], engine="endpoint")
    (_, arm, *_) = verdict_of(loaded, "mtp@1/n4").arms
    assert (arm.accepted, arm.drafted) == (None, None)


def test_speed_is_that_of_the_batch_and_counts_once(loaded):
    run = loaded.run()
    item = next(i for i in run.evidence if (i.spec.arm.name, i.task) == ("mtp@1/n4", "csv"))
    facts = speed_facts(item, 0.95)
    assert facts["prompts"] == 2
    assert facts["ratio"] == pytest.approx(2.0 / 1.5)
    loaded.change("w1", arm="plain/n4", ttft_s=0.1, decode_s=4.0)
    item = next(i for i in loaded.run().evidence if (i.spec.arm.name, i.task) == ("mtp@1/n4", "prose"))
    assert max(a.rate for a in item.plain.answers) == pytest.approx(
        2 * min(a.rate for a in item.plain.answers)
    )


def test_a_batch_with_a_failed_member_has_no_speed(loaded):
    from evals.types import Failure

    loaded.change("w1", arm="mtp@1/n4", failure=Failure("crash", "gone"), ids=(), text="")
    item = next(i for i in loaded.run().evidence if (i.spec.arm.name, i.task) == ("mtp@1/n4", "prose"))
    assert {a.prompt for a in item.spec.answers if a.rate is None} == {"w1", "w2"}


def test_what_only_keeps_up_the_load_is_not_judged(loaded):
    loaded.probe("w1", "fill", arm="mtp@1/n4", session=0, text="something else", ids=(1, 2, 3), batch=1)
    loaded.probe("w1", "fill", arm="plain/n4", session=0, text="something else", ids=(1, 2, 3), batch=1)
    assert loaded.verdict().decision == "serve"


def test_the_speed_of_a_batch_says_nothing_of_depth(loaded):
    prompts = [f"w{n}" for n in range(6)]
    loaded.add_task("deep", prompts=prompts)
    for arm in loaded.arms:
        for n, prompt in enumerate(prompts):
            deep = n >= 3
            slow = {"decode_s": 9.0} if deep and loaded.arms[arm].method == "mtp" else {}
            batch = {"batch": n // 3} if arm in LOADED else {}
            loaded.change(prompt, arm=arm, task="deep", prompt_tokens=4000 if deep else 40, **slow, **batch)
    found = [f for f in loaded.verdict().findings if f.code == "slower-at-depth"]
    assert {(f.task, f.arm) for f in found} == {("deep", "mtp@1")}
