"""The threat: a later turn asked behind answers that the arm never gave, or compared as if it had the same context."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evals.arms import build_arms
from evals.conversation import Conversations
from evals.decode import Asked, Decoding, Plan
from evals.diff import compare
from evals.digest import ModelDigests
from evals.engine.prepare import PrepareError, prepare
from evals.messages import Chat, Message
from evals.model_dir import inspect_model
from evals.plan import Turn
from evals.tokens import TokenTable
from evals.types import Answer, Failure

U, A = "user", "assistant"


def asked(prompt: str, text: str, after: str | None = None) -> Asked:
    whole = Chat((Message("user", text),))
    return Asked("t", prompt, "" if after else text, 3, messages=whole.messages, after=after)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """The fake engine answers "ab" to everything but a word that asks for a fault."""
    return Plan(
        model=tmp_path,
        arms=build_arms(ModelDigests(whole="w", target="t", head="h", files={})),
        repeats={"plain": 2},
        asked=(
            asked("s", "single"),
            asked("p", "one"),
            asked("p.2", "two", "p"),
            asked("p.3", "three", "p.2"),
        ),
        stop_ids=frozenset({2}),
        renders=False,
    )


@pytest.fixture
def fake(repo: Path) -> dict[str, Any]:
    return {"command": (sys.executable, "-P", str(repo / "tests" / "fixtures" / "fake_worker.py"))}


def run(plan: Plan, **options: Any) -> list[Answer]:
    with Decoding(plan, **options) as decoding:
        return list(decoding)


def context(*said: tuple[str, str]) -> Asked:
    return Asked("t", "x", Chat(tuple(Message(r, t) for r, t in said)).canonical(), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("sequential", [False, True])
def test_a_later_turn_comes_after_the_arms_own_answers(
    plan: Plan, fake: dict[str, Any], sequential: bool
) -> None:
    answers = {a.key: a for a in run(plan, sequential=sequential, **fake)}
    assert len(answers) == 4 * 3
    third = context((U, "one"), (A, "ab"), (U, "two"), (A, "ab"), (U, "three"))
    for arm, repeat in (("plain", 0), ("plain", 1), ("mtp@1", 0)):
        assert answers[arm, "t", "p.3", repeat, 0, None].prompt_sha256 == third.sha256


def test_no_arm_goes_on_from_anothers_answer(plan: Plan) -> None:
    """Nor from that of another repeat, session or probe."""
    base = Answer("plain", "t", "p", 0, "x", 4, 9, text="plain's", ids=(1,))
    others = [
        replace(base, arm="mtp@1", text="the head's"),
        replace(base, repeat=1, text="again"),
        replace(base, session=1, probe="state", text="the probe's"),
    ]
    with Conversations(plan) as talks:
        talks.tell([base, *others])
        arms = {arm.name: arm for arm in plan.arms}
        for said in (base, *others):
            turn = Turn(arms[said.arm], plan.asked[2], said.repeat, said.session, said.probe)
            whole = talks.complete(turn)
            assert isinstance(whole, Turn)
            assert whole.asked.text == context((U, "one"), (A, said.text), (U, "two")).text


def test_a_turn_after_none_is_not_asked(plan: Plan, fake: dict[str, Any]) -> None:
    broken = replace(
        plan, asked=(asked("p", "error"), asked("p.2", "two", "p"), asked("p.3", "three", "p.2"))
    )
    answers = run(broken, **fake)
    assert len(answers) == 9 and all(a.failure is not None for a in answers)
    told = {a.failure.message for a in answers if a.failure and a.prompt != "p"}
    assert told == {"not asked: a turn before it in the conversation has no answer"}
    assert "two" not in (plan.model / "asked").read_text()


def test_a_resumed_run_goes_on_from_what_was_said(plan: Plan, fake: dict[str, Any]) -> None:
    whole = {a.key: a for a in run(plan, **fake)}
    had = [a for a in whole.values() if a.prompt in ("s", "p")]
    again = run(plan, done={a.key for a in had}, earlier=had, **fake)
    assert len(again) == len(whole) - len(had)
    assert all(a.prompt_sha256 == whole[a.key].prompt_sha256 for a in again)


def test_the_first_conversation_is_probed_turn_by_turn(plan: Plan, fake: dict[str, Any]) -> None:
    probed = replace(plan, repeats={}, state_probe=True)
    probes = [a for a in run(probed, **fake) if a.probe == "state"]
    assert {(a.prompt, a.session) for a in probes} == {
        (p, s) for p in ("s", "p", "p.2", "p.3") for s in (0, 1)
    }
    assert all(a.failure is None for a in probes)
    first = next(a for a in run(probed, **fake) if a.prompt == "p.3" and a.probe is None)
    assert {a.prompt_sha256 for a in probes if a.prompt == "p.3"} == {first.prompt_sha256}


def test_only_turns_with_one_context_are_diffed(sample_dir: Path) -> None:
    tokens = TokenTable.load(sample_dir)
    base = Answer("plain", "t", "p.2", 0, "same", 4, 9, ids=(30, 31, 2), text="ab", finish="stop")
    other = replace(base, arm="mtp@1", ids=(30, 32, 2), text="ac")
    diffed = compare(base, other, tokens)
    assert diffed.same_context and diffed.divergence is not None
    apart = compare(base, replace(other, prompt_sha256="another"), tokens)
    assert not apart.same_context and apart.divergence is None and apart.realignment is None
    assert not apart.identical
    with pytest.raises(ValueError, match="two answers to one prompt"):
        compare(replace(base, prompt="p"), replace(other, prompt="p", prompt_sha256="another"), tokens)


def test_the_models_own_template_renders_the_roles(sample_dir: Path, plan: Plan) -> None:
    real = replace(plan, model=sample_dir, renders=True)
    arm = plan.arms[0]
    with Conversations(real) as talks:
        talks.tell([Answer("plain", "t", "p", 0, "x", 4, 9, text="an answer", ids=(1,))])
        whole = talks.complete(Turn(arm, plan.asked[2]))
        assert isinstance(whole, Turn)
        assert whole.asked.text == (
            "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nan answer<|im_end|>\n"
            "<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
        )
        assert [m.role for m in whole.asked.messages] == ["user", "assistant", "user"]
        assert isinstance(talks.complete(Turn(arm, plan.asked[3])), Failure), "nothing was said in turn 2"


def test_a_template_that_takes_no_tool_turn_is_refused_before_decoding(
    sample_dir: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in sample_dir.iterdir():
        (model / file.name).symlink_to(file)
    (model / "chat_template.jinja").unlink()
    (model / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    tool = Chat((Message("tool", "7"),), after="p")
    tools = ({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},)
    ours = inspect_model(model)
    with pytest.raises(PrepareError, match="no tools here"):
        prepare(ours, [Chat((Message("user", "hi"),)), tool])
    assert prepare(ours, [Chat((Message("user", "hi"),), tools=tools)]).tools_left_out
    (model / "chat_template.jinja").write_text(
        "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    shown = prepare(ours, [Chat((Message("user", "hi"),), tools=tools), replace(tool, tools=tools)])
    assert not shown.tools_left_out
    assert "'name': 'f'" in shown.rendered[0] and shown.rendered[1] == ""
