"""The threat: some combination of what is missing that no rule thought of, and the gate says serve.

Whatever is taken from a clean run, a verdict of serve must still rest on everything it claims to rest on.
"""

from __future__ import annotations

import json

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.types import CaseGrade, Failure, RunEnd, SandboxReport
from gate.schema import published_schema
from gate.verdict import encode_verdict

HURTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "answer",
                "grade",
                "infra",
                "failure",
                "no drafts",
                "no counters",
                "sandbox",
                "end",
                "digest",
                "case",
            ]
        ),
        st.sampled_from(["plain", "mtp@1"]),
        st.sampled_from(["w1", "w2", "w3", "w4"]),
        st.sampled_from([0, 1]),
    ),
    max_size=5,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hurts=HURTS)
def test_serve_rests_on_evidence(make_scene, hurts):
    scene = make_scene()
    for what, arm, prompt, repeat in hurts:
        hurt(scene, what, arm, prompt, repeat)
    verdict = scene.verdict()
    json.loads(encode_verdict(verdict))
    if verdict.decision != "serve":
        assert verdict.reasons
        return
    for arm in ("plain", "mtp@1"):
        for prompt in ("w1", "w2", "w3", "w4"):
            assert all(scene.answers_by[arm, "csv", prompt, r].failure is None for r in (0, 1))
            assert [c.outcome for c in scene.grades_by[arm, "csv", prompt].cases] == ["pass"] * 3
    assert sum(a.drafted or 0 for k, a in scene.answers_by.items() if k[0] == "mtp@1" and k[3] == 0) >= 50
    assert scene.sandbox is not None
    assert scene.sandbox.trusted
    assert scene.end is not None
    assert scene.end.complete
    assert scene.end.model_digest_after == "d" * 64


def hurt(scene, what, arm, prompt, repeat):
    key, grade = (arm, "csv", prompt, repeat), (arm, "csv", prompt)
    if what == "answer":
        scene.answers_by.pop(key, None)
    elif what == "grade":
        scene.grades_by.pop(grade, None)
    elif what in ("infra", "case") and grade in scene.grades_by:
        cases = (CaseGrade("one", "pass"), CaseGrade("two", "infra"), CaseGrade("three", "pass"))
        scene.grades_by[grade] = msgspec.structs.replace(
            scene.grades_by[grade], cases=cases if what == "infra" else cases[:1]
        )
    elif what == "failure":
        scene.change(
            prompt, arm=arm, repeat=repeat, ids=(), text="", failure=Failure(kind="crash", message="x")
        )
    elif what == "no drafts":
        scene.change_all(accepted=0, drafted=0)
    elif what == "no counters":
        scene.change_all(accepted=None, drafted=None)
    elif what == "sandbox":
        scene.sandbox = SandboxReport(name="x", trusted=False) if repeat else None
    elif what == "end":
        scene.end = None
    elif what == "digest" and scene.end is not None:
        scene.end = RunEnd(
            complete=True, reason="", model_digest_after="e" * 64 if repeat else None, wall_s=1, engine_s=1
        )


def test_what_was_decided_validates_against_the_published_schema(make_scene):
    from jsonschema import Draft202012Validator

    scene = make_scene()
    scene.diverge("w2")
    scene.margin("w2", gap=9.0)
    scene.grade("w2", {"two": "crash"})
    scene.change_all(decode_s=5.0)
    document = json.loads(encode_verdict(scene.verdict()))
    Draft202012Validator(published_schema()).validate(document)
    assert document["decision"] == "do_not_serve"
