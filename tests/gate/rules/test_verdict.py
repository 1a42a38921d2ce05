"""The threat: a verdict that passes what nobody looked at, or blocks on what can't be read.

The first test is the clean run that must be served; each of the others takes one thing away from it.
"""

from __future__ import annotations

import datetime as dt

import pytest

from evals.types import Failure, RunEnd
from gate.verdict import MAX_LISTED, encode_verdict, exit_code


def test_a_clean_run_is_served(scene):
    verdict = scene.verdict()
    assert (verdict.decision, verdict.reasons, verdict.worth_it) == ("serve", (), True)
    (task,) = verdict.tasks
    assert (task.decision, task.prompts, task.identical) == ("serve", 4, 4)
    assert task.sentence == (
        "csv, mtp@1 may be served: 4 of 4 answers byte-identical to plain, 12 of 12 cases pass (12 with plain), "
        "acceptance 81.8 % (360/440)."
    )
    assert verdict.k == (1,)
    assert verdict.head_digests == {"mtp@1": "h" * 64}
    assert verdict.target_digest == "t" * 64
    assert "K = 1" in verdict.what_to_do


def test_an_honest_near_tie_with_no_loss_is_served(scene):
    scene.diverge("w2")
    scene.margin("w2")
    assert scene.verdict().decision == "serve"
    assert scene.codes() == {"near-tie": "note"}


def test_a_run_without_speculative_arm_is_inconclusive(scene):
    del scene.arms["mtp@1"]
    scene.answers_by = {k: a for k, a in scene.answers_by.items() if k[0] == "plain"}
    verdict = scene.verdict()
    assert (verdict.decision, verdict.reasons, verdict.tasks) == ("inconclusive", ("nothing-judged",), ())


def test_advice_for_every_decision_says_something_to_do(scene):
    scene.change_all(accepted=0, drafted=0)
    verdict = scene.verdict()
    assert verdict.decision == "inconclusive"
    assert "drafting is on" in verdict.what_to_do


def test_a_certain_fault_blocks_though_something_else_cannot_be_read(scene):
    scene.change("w1", ids=(*scene.answers_by["mtp@1", "csv", "w1", 0].ids, 65, 66))  # after the stop
    del scene.answers_by["mtp@1", "csv", "w3", 0]
    verdict = scene.verdict()
    assert verdict.decision == "do_not_serve"
    assert verdict.reasons == ("post-stop-leak",)
    assert {f.code: f.severity for f in verdict.findings}["answers-missing"] == "unreadable"


def test_a_difference_does_not_count_where_plain_cannot_be_read(scene):
    scene.change("w1", arm="plain", repeat=1, text="something else altogether")
    scene.diverge("w2")
    scene.grade("w2", {"one": "crash"})
    verdict = scene.verdict()
    assert (verdict.decision, verdict.reasons) == ("inconclusive", ("plain-unrepeatable",))
    lost = next(f for f in verdict.findings if f.code == "case-lost")
    assert lost.severity == "note"
    assert lost.message.endswith("(does not count: plain-unrepeatable)")


def test_a_lost_case_does_not_count_where_nothing_was_drafted(scene):
    scene.change_all(accepted=0, drafted=0)
    scene.diverge("w2")
    scene.grade("w2", {"one": "fail"})
    assert scene.verdict().reasons == ("not-exercised",)


def test_a_changed_model_voids_even_a_fault(scene):
    scene.change("w1", failure=Failure(kind="crash", message="boom", signal=11))
    scene.end = RunEnd(complete=True, reason="", model_digest_after="e" * 64, wall_s=1, engine_s=1)
    verdict = scene.verdict()
    assert verdict.decision == "inconclusive"
    assert verdict.reasons[0] == "model-changed"
    assert verdict.tasks[0].decision == "inconclusive"
    assert "void" in verdict.tasks[0].sentence


def test_the_whole_is_the_worst_of_what_is_required(scene, make_policy):
    scene.add_task("prose", judge="constraints", kind="prose")
    scene.diverge("w1", task="prose")
    scene.grade("w1", {"one": "fail"}, task="prose")
    verdict = scene.verdict()
    assert verdict.decision == "do_not_serve"
    assert verdict.reasons == ("constraint-lost",)
    assert "blocked on prose (mtp@1)" in verdict.sentence
    assert "csv (mtp@1) would pass" in verdict.sentence

    advisory = scene.verdict(make_policy('[requirements.tasks]\nprose = "advisory"'))
    assert advisory.decision == "serve"
    assert [t.decision for t in advisory.tasks] == ["serve", "do_not_serve"]


def test_a_task_that_blocks_outweighs_one_that_cannot_be_judged(scene):
    scene.add_task("prose", judge="constraints", kind="prose")
    scene.change_all(task="prose", accepted=0, drafted=0)
    scene.diverge("w1")
    scene.grade("w1", {"one": "fail"})
    verdict = scene.verdict()
    assert (verdict.decision, verdict.reasons) == ("do_not_serve", ("case-lost",))
    assert {t.task: t.decision for t in verdict.tasks} == {"csv": "do_not_serve", "prose": "inconclusive"}


def test_a_policy_that_requires_nothing_serves_nothing(scene, make_policy):
    verdict = scene.verdict(make_policy('[requirements]\ndefault = "advisory"'))
    assert (verdict.decision, verdict.reasons) == ("inconclusive", ("nothing-judged",))


def test_several_heads_are_judged_apart_and_the_worst_counts(scene):
    scene.add_arm("mtp@3", "mtp", 3, repeats=2)
    scene.change_all(arm="mtp@3", accepted=0, drafted=500)
    verdict = scene.verdict()
    assert [(t.arm, t.decision) for t in verdict.tasks] == [("mtp@1", "serve"), ("mtp@3", "do_not_serve")]
    assert verdict.k == (1, 3)
    assert "csv (mtp@1) would pass" in verdict.sentence


def test_a_finding_of_plain_is_listed_once_beside_several_arms(scene):
    scene.add_arm("mtp@3", "mtp", 3, repeats=2)
    scene.change("w1", arm="plain", repeat=1, text="something else altogether")
    assert [f.code for f in scene.verdict().findings].count("plain-unrepeatable") == 1


def test_the_list_of_findings_is_bounded_and_says_how_many_more(scene):
    scene.add_task("big", prompts=[f"p{i}" for i in range(60)])
    for i in range(50):
        scene.diverge(f"p{i}", task="big")
    listed = [f for f in scene.verdict().findings if f.code == "diverged"]
    assert len(listed) == MAX_LISTED + 1
    assert listed[-1].evidence == {"more": 50 - MAX_LISTED}


def test_severities_of_the_policy_decide(scene, make_policy):
    scene.change_all(decode_s=4.0)
    noted = scene.verdict()
    assert (noted.decision, noted.worth_it) == ("serve", False)
    assert "isn't worth it" in noted.what_to_do
    blocked = scene.verdict(make_policy('[severities]\n"slower-than-plain" = "block"'))
    assert (blocked.decision, blocked.reasons) == ("do_not_serve", ("slower-than-plain",))


def test_worth_is_unknown_where_speed_was_not_measured(scene):
    scene.change_all(decode_s=None)
    verdict = scene.verdict()
    assert verdict.worth_it is None
    assert verdict.tasks[0].speed_ratio is None
    assert any("throughput was not measured" in c for c in verdict.caveats)


@pytest.mark.parametrize("method", ["draft", "eagle3", "dflash", "prompt_lookup"])
def test_what_drafts_without_a_head_has_a_verdict_and_no_control_arm(scene, method):
    scene.add_arm("other@3", method, 3, repeats=2)
    del scene.arms["mtp@1"]
    scene.answers_by = {key: a for key, a in scene.answers_by.items() if a.arm != "mtp@1"}
    verdict = scene.verdict()
    assert [task.arm for task in verdict.tasks] == ["other@3"]
    assert any("no control arm for drafts" in c for c in verdict.caveats)
    assert not any("this target and head" in c for c in verdict.caveats)


def test_caveats_say_what_cannot_be_said(scene):
    scene.add_task("prose", judge="constraints", kind="prose", builtin=True)
    scene.environment = {"in_force": {"KV_CACHE_PRECISION": "u8"}}
    scene.repeats["mtp@1"] = 1
    scene.diverge("w1")
    said = " ".join(scene.verdict().caveats)
    for part in (
        "(prose) stand for themselves",
        "No control arm",
        "quantised KV cache",
        "margin was not measured",
    ):
        assert part in said
    assert "decoded once" in said


def test_the_same_records_give_the_same_verdict_and_its_date(scene):
    now = dt.datetime(2027, 1, 2, 3, 4, tzinfo=dt.UTC)
    one, two = encode_verdict(scene.verdict(now=now)), encode_verdict(scene.verdict(now=now))
    assert one == two
    assert scene.verdict(now=now).created == "2027-01-02T03:04:00+00:00"


@pytest.mark.parametrize(
    ("decision", "allow", "code"),
    [
        ("serve", False, 0),
        ("serve_with_limits", False, 1),
        ("serve_with_limits", True, 0),
        ("do_not_serve", True, 1),
        ("inconclusive", True, 3),
    ],
)
def test_exit_codes(decision, allow, code):
    assert exit_code(decision, allow_limits=allow) == code
