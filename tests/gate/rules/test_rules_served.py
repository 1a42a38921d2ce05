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
