"""The threat: what only a server can get wrong (who answers, what is billed, whether it drafts at all) unseen."""

from __future__ import annotations

import msgspec
import pytest

from evals.types import UNKNOWN, Endpoint, Failure, Margin
from gate.attestation import AttestationError, test_result_statement
from gate.evidence import Twin
from gate.policy import load_policy
from gate.rules.served_differs import RULE
from gate.verdict import encode_verdict


@pytest.fixture
def served(scene):  # type: ignore[no-untyped-def]
    """The scene with both arms behind URLs, ids unknown."""
    for name, arm in list(scene.arms.items()):
        scene.arms[name] = msgspec.structs.replace(
            arm, engine="endpoint", device=UNKNOWN, target_digest=UNKNOWN, head_digest=None,
            endpoint=Endpoint(url=f"http://127.0.0.1/{arm.method}"),
            method="plain" if arm.method == "plain" else "served",
        )  # fmt: skip
    for key, answer in scene.answers_by.items():
        scene.answers_by[key] = msgspec.structs.replace(
            answer, ids=(), ids_from=None, streamed=None, reported_tokens=250, cuts=(1,) * len(answer.text),
            server={"system_fingerprint": "b1", "model": "m"},
        )  # fmt: skip
    return scene


def codes(scene, severity):  # type: ignore[no-untyped-def]
    return {f.code for f in scene.verdict().findings if f.severity == severity}


def test_a_clean_served_scene_is_served(served) -> None:  # type: ignore[no-untyped-def]
    verdict = served.verdict()
    assert verdict.decision == "serve", verdict.findings
    assert any("no attestation" in caveat for caveat in verdict.caveats)


def test_a_plain_server_that_drafts_is_no_measure(served) -> None:  # type: ignore[no-untyped-def]
    served.change("w1", arm="plain", accepted=3, drafted=4)
    assert "plain-drafts" in codes(served, "unreadable") and served.verdict().decision == "inconclusive"


@pytest.mark.parametrize("key", ["system_fingerprint", "model"])
def test_a_server_that_is_replaced_is_noticed(served, key) -> None:  # type: ignore[no-untyped-def]
    served.change("w2", server={"system_fingerprint": "b1", "model": "m", key: "other"})
    assert "server-changed" in codes(served, "unreadable")


def test_counters_that_are_not_there_are_unknown(served) -> None:  # type: ignore[no-untyped-def]
    for prompt in ("w1", "w2", "w3", "w4"):
        served.change(prompt, accepted=None, drafted=None)
    assert "speculation-unseen" in codes(served, "unreadable")
    assert "dead-head" not in codes(served, "block")


def test_the_same_text_billed_otherwise_is_a_fault_of_the_bill(served) -> None:  # type: ignore[no-untyped-def]
    served.change("w1", reported_tokens=300)
    assert codes(served, "block") == {"usage-mismatch"}


def test_trouble_of_the_machine_says_nothing_of_the_head(served) -> None:  # type: ignore[no-untyped-def]
    served.change("w1", failure=Failure(kind="server_error", message="HTTP 503"))
    served.grade("w1", dict.fromkeys(("one", "two", "three"), "infra"))
    verdict = served.verdict()
    assert verdict.decision == "inconclusive" and "server-error" in verdict.reasons


def test_nothing_is_attested_of_a_url(served) -> None:  # type: ignore[no-untyped-def]
    verdict, run = served.verdict(), served.run()
    with pytest.raises(AttestationError, match="asked over HTTP"):
        test_result_statement(verdict, run.manifest, encode_verdict(verdict))


test_result_statement.__test__ = False  # type: ignore[attr-defined]


def test_a_prompt_billed_otherwise_than_by_plain_is_a_fault_of_the_bill(served) -> None:  # type: ignore[no-untyped-def]
    served.change("w1", prompt_tokens=served.answers_by["plain", "csv", "w1", 0].prompt_tokens + 4)
    assert codes(served, "block") == {"usage-mismatch"}


@pytest.mark.parametrize(
    ("slow", "what"),
    [
        ({"ttft_s": 2.0}, "the first token"),
        ({"pause_s": 2.0}, "the longest pause"),
        ({"decode_s": 90.0}, "a hundred tokens"),
    ],
)
def test_replies_that_come_far_later_than_plains_are_a_fault(served, slow, what) -> None:  # type: ignore[no-untyped-def]
    for key in served.answers_by:
        served.answers_by[key] = msgspec.structs.replace(
            served.answers_by[key], ttft_s=0.3, pause_s=0.2, decode_s=3.0
        )
    assert "reply-delayed" not in {f.code for f in served.verdict().findings}
    served.change("w2", repeat=0, **slow)
    assert "reply-delayed" not in {f.code for f in served.verdict().findings}, "the other reply came in time"
    served.change("w2", **slow)
    found = [f for f in served.verdict().findings if f.code == "reply-delayed"]
    assert [(f.severity, f.prompt, f.evidence["what"]) for f in found] == [("block", "w2", what)]
    served.change("w2", arm="plain", **slow)
    assert "reply-delayed" not in {f.code for f in served.verdict().findings}, "plain is as late"


def test_one_long_pause_leaves_a_task_unread(served) -> None:  # type: ignore[no-untyped-def]
    for key in served.answers_by:
        served.answers_by[key] = msgspec.structs.replace(served.answers_by[key], pause_s=0.2)
    served.change("w2", repeat=1, pause_s=6.0)
    assert "reply-delayed" in codes(served, "unreadable") and served.verdict().decision == "inconclusive"


def late(scene):  # type: ignore[no-untyped-def]
    return [
        (f.severity, f.prompt, f.evidence["what"])
        for f in scene.verdict().findings
        if f.code == "reply-delayed"
    ]


def test_a_step_of_several_tokens_may_take_longer_where_the_reply_is_faster(served) -> None:  # type: ignore[no-untyped-def]
    served.change_all(arm="plain", pause_s=0.5, decode_s=100.0)
    served.change_all(pause_s=1.2, decode_s=60.0)
    assert not late(served)
    served.change("w1", decode_s=101.0)
    assert late(served) == [("block", "w1", "the longest pause")]


def test_the_time_of_a_reply_that_came_whole_is_no_pause(served) -> None:  # type: ignore[no-untyped-def]
    for arm, seconds in (("plain", 0.4), ("mtp@1", 20.0)):
        served.change_all(arm=arm, pause_s=seconds, ttft_s=None, decode_s=None)
    assert {what for _, _, what in late(served)} == {"a hundred tokens of a whole reply"}
    served.change_all(ids=tuple(range(10, 600)), text="longer", pause_s=1.0)
    assert not late(served), "a longer reply takes longer"
    served.change_all(ttft_s=0.1, pause_s=20.0)
    assert not late(served), "plain's came whole"
    for arm, seconds in (("plain", 0.4), ("mtp@1", 20.0)):
        served.change_all(arm=arm, ttft_s=None, decode_s=seconds)
    assert {what for _, _, what in late(served)} == {"a hundred tokens"}, "told from how long all of it took"


@pytest.mark.parametrize(("slow", "times", "blocks"), [(1, 3, 0), (2, 3, 0), (3, 3, 3), (1, 11, 1)])
def test_a_slow_rest_is_a_fault_on_most_prompts_or_beyond_any_heads_cost(served, slow, times, blocks) -> None:  # type: ignore[no-untyped-def]
    served.change_all(arm="plain", decode_s=20.0)
    served.change_all(decode_s=10.0)
    for prompt in ("w1", "w2", "w3")[:slow]:
        served.change(prompt, decode_s=20.0 * times)
    assert [what for _, _, what in late(served)] == ["a hundred tokens"] * blocks


@pytest.mark.parametrize("arm", ["plain", "mtp@1"])
def test_one_reading_is_not_every_answer(served, arm) -> None:  # type: ignore[no-untyped-def]
    served.change("w1", ttft_s=9.0)
    assert late(served) == [("block", "w1", "the first token")]
    served.change("w1", arm=arm, repeat=0, ttft_s=None)
    assert not late(served)


def test_long_pauses_that_came_more_than_once_are_counted(served) -> None:  # type: ignore[no-untyped-def]
    for arm in ("plain", "mtp@1"):
        served.change_all(arm=arm, pause_s=0.2)
    served.change("w2", repeat=1, pause_s=6.0)
    assert "one reply pauses for 6.0 s" in served.found("reply-delayed").message
    assert "wasn't seen again" in served.found("reply-delayed").message
    served.change("w3", repeat=0, pause_s=7.0)
    found = served.found("reply-delayed")
    assert found.severity == "unreadable" and "2 replies to 2 prompts pause, for up to 7.0 s" in found.message
    assert "seen again" not in found.message


def billed_beyond(scene, prompt, more, arm="mtp@1"):  # type: ignore[no-untyped-def]
    tokens = len(scene.answers_by[arm, "csv", prompt, 0].ids)
    scene.change(prompt, arm=arm, reported_tokens=tokens + more)


@pytest.mark.parametrize(("more", "blocks"), [(20, False), (50, False), (80, True)])
def test_what_plain_itself_bills_unseen_is_allowed_the_arm(scene, more, blocks) -> None:  # type: ignore[no-untyped-def]
    """A server that thinks on some prompts bills tokens that nobody sees."""
    for arm in ("plain", "mtp@1"):
        for prompt in ("w1", "w2", "w3", "w4"):
            billed_beyond(scene, prompt, 50 if prompt == "w1" else 0, arm)
    scene.diverge("w2")
    billed_beyond(scene, "w2", more)
    assert ("short-delivery" in scene.verdict().reasons) is blocks


MARGIN = Margin(
    arm="served", task="csv", prompt="w2", repeat=0, token_index=3, rank=2, gap=0.01, gap_at_verify_width=0.0,
    movement=0.01, noise={"p50": 0.01, "p90": 0.02, "p99": 0.05, "max": 0.1}, source="paged", reproduced=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("gap", "acceptance", "differs", "found"),
    [
        (0.01, ((157, 70), (163, 163)), False, [("note", "head")]),
        (0.01, ((157, 150), (163, 163)), False, []),
        (0.01, ((15, 1), (16, 16)), False, []),
        (9.0, ((157, 70), (163, 163)), True, [("block", "target")]),
        (0.01, ((157, 70), (163, 163)), True, [("block", "head")]),
        (0.01, ((157, 157), (163, 163)), True, [("block", "kernels")]),
        (None, None, True, [("block", "decoding")]),
    ],
)
def test_what_differs_in_decoding_is_named(scene, gap, acceptance, differs, found) -> None:  # type: ignore[no-untyped-def]
    scene.change("w2", text="def parse(text):\n    return text.split(',')\n")
    evidence = next(e for e in scene.run().evidence if e.task == "csv")
    twin = Twin(
        "mtp@1",
        {"w1": None, "w2": "decoding" if differs else None},
        {"w2": 4} if differs else {},
        *(acceptance or (None, None)),
    )
    margins = {} if gap is None else {"w2": msgspec.structs.replace(MARGIN, gap=gap)}
    at = evidence.spec.comparisons["w2"].divergence.token_index
    margins = {p: msgspec.structs.replace(m, token_index=at) for p, m in margins.items()}
    told = list(RULE.check(msgspec.structs.replace(evidence, twin=twin, margins=margins), load_policy(None)))
    assert [(f.severity, f.evidence["layer"]) for f in told] == found


def by_tokenizer(served, plain: int, spec: int | None = None, billed: int = 250):  # type: ignore[no-untyped-def]
    """Every text split into so many tokens by --tokenizer, all billed alike."""
    for key, answer in served.answers_by.items():
        count = plain if key[0] == "plain" or spec is None else spec
        served.answers_by[key] = msgspec.structs.replace(
            answer, ids=tuple(range(100, 100 + count)), ids_from="tokenizer", reported_tokens=billed, cuts=()
        )
    return served


@pytest.mark.parametrize("split", [242, 244, 249, 250, 253])
def test_the_servers_own_tokenizer_may_split_a_little_otherwise(served, split) -> None:  # type: ignore[no-untyped-def]
    verdict = by_tokenizer(served, split).verdict()
    assert verdict.decision == "serve", verdict.findings


@pytest.mark.parametrize("split", [80, 200, 233, 262, 300, 900])
def test_another_models_tokenizer_is_told_and_decides_nothing(served, split) -> None:  # type: ignore[no-untyped-def]
    """Neither clean nor at fault, though the arm's own answer is off by more than plain's."""
    by_tokenizer(served, split).change("w2", ids=tuple(range(100, 100 + split * 2)))
    by = {f.code: f for f in served.verdict().findings if f.severity in ("block", "unreadable")}
    assert set(by) == {"another-tokenizer"}, by
    assert f"{4 * split} tokens by --tokenizer and are billed as 1000" in by["another-tokenizer"].message
    assert served.verdict().decision == "inconclusive"
    by_tokenizer(served, split).change("w2", ids=(100,))
    assert not codes(served, "block")


def test_plains_own_count_is_allowed_for(served) -> None:  # type: ignore[no-untyped-def]
    """Off by 3 % in plain already (no ground to refuse), and by 3 % more where the arm says another text."""
    by_tokenizer(served, 244).change("w2", ids=tuple(range(100, 335)), text="another text")
    assert "short-delivery" not in codes(served, "block")
    by_tokenizer(served, 256).change("w2", ids=tuple(range(100, 368)), text="another text")
    assert "over-delivery" not in codes(served, "block")
    by_tokenizer(served, 250).change("w2", ids=tuple(range(100, 320)), text="another text")
    assert "short-delivery" in codes(served, "block")
    by_tokenizer(served, 250).change("w2", ids=tuple(range(100, 390)), text="another text")
    assert "over-delivery" in codes(served, "block")


@pytest.mark.parametrize(("ids_from", "count", "billed"), [("tokenizer", 290, 300), (None, 0, None)])
def test_an_end_at_the_budget_that_cannot_be_counted_is_no_short_delivery(
    served, ids_from, count, billed
) -> None:  # type: ignore[no-untyped-def]
    """A text that splits into fewer tokens than said it, and a server that tells neither ids nor a bill."""
    for arm in ("plain", "mtp@1"):
        served.change(
            "w1", arm=arm, ids=tuple(range(100, 100 + count)), ids_from=ids_from, reported_tokens=billed,
            finish="length" if arm != "plain" else "stop", text=arm, max_new_tokens=300, cuts=(),
        )  # fmt: skip
    assert "short-delivery" not in codes(served, "block")


def test_a_verdict_says_that_answers_were_asked_for_again(served) -> None:  # type: ignore[no-untyped-def]
    assert not any("asked again" in caveat for caveat in served.verdict().caveats)
    served.unanswered_list = list(served.answers_by.values())[:2]
    assert any("Servers left 2 questions unanswered" in caveat for caveat in served.verdict().caveats)


def test_a_finish_reason_that_we_do_not_know_is_another_all_the_same(served) -> None:  # type: ignore[no-untyped-def]
    own = {"system_fingerprint": "b1", "model": "m", "finish_reason": "content_filter"}
    served.change("w1", finish="unknown", server=own)
    assert codes(served, "block") == {"finish-mismatch"}
    served.change("w1", arm="plain", server={})  # decoded in-process, by the gate's own words
    assert "finish-mismatch" not in codes(served, "block")
    served.change("w1", arm="plain", finish="unknown", server=own)
    assert not codes(served, "block")


def test_no_bill_where_plain_has_one_is_a_fault_of_the_bill(served) -> None:  # type: ignore[no-untyped-def]
    served.change("w1", reported_tokens=None)
    assert codes(served, "block") == {"usage-mismatch"}
    served.change("w1", arm="plain", reported_tokens=None)
    assert not codes(served, "block")


def test_spaces_that_a_whole_reply_lacks_at_its_end_are_no_fault_of_the_stream(served) -> None:  # type: ignore[no-untyped-def]
    """And where plain's whole reply lacks them too, a fault of the arm's stream is still its own."""
    for (arm, _, prompt, repeat), answer in list(served.answers_by.items()):
        served.change(prompt, arm=arm, repeat=repeat, text=answer.text + " \n", ids=(), streamed=None)
    for arm in ("plain", "mtp@1"):
        text = served.answers_by[arm, "csv", "w1", 0].text.rstrip()
        served.probe("w1", "whole", arm=arm, text=text, session=0)
    assert "stream-mismatch" not in {f.code for f in served.verdict().findings}
    served.probes.pop()
    served.probe("w1", "whole", text=text[:-5], session=0)
    assert "stream-mismatch" in codes(served, "block")


def test_a_loop_that_comes_in_uneven_pieces_is_one(served) -> None:  # type: ignore[no-untyped-def]
    text = "and the cat sat on the mat " * 60
    cuts, left = [], len(text)
    while left:
        cuts.append(min(left, 3 + len(cuts) ** 2 % 23))
        left -= cuts[-1]
    served.change("w1", finish="length", cuts=tuple(cuts), streamed=None)
    for key, answer in served.answers_by.items():
        if key[0] != "plain" and key[2] == "w1":
            served.answers_by[key] = msgspec.structs.replace(answer, text=text)
    assert "degenerate-spec" in codes(served, "block")
