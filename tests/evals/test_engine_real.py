"""The threat: what the real engine does isn't what is recorded of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from evals.arms import build_arms
from evals.decode import Asked, Decoding, Plan
from evals.digest import digest_model
from evals.engine.prepare import PrepareError, prepare
from evals.engine.process import EngineProcess
from evals.engine.protocol import Build
from evals.model_dir import inspect_model
from evals.tokens import TokenTable
from evals.types import Answer

pytestmark = pytest.mark.engine
BUDGET = 40


@pytest.fixture(scope="module")
def plan(sample_dir: Path, known_texts: tuple[str, str]) -> Plan:
    model = inspect_model(sample_dir)
    prepared = prepare(model, known_texts)
    return Plan(
        model=sample_dir,
        arms=build_arms(digest_model(model), ks=(2,), versions=prepared.versions),
        repeats={"plain": 2},
        asked=tuple(Asked("t", str(n), text, BUDGET) for n, text in enumerate(prepared.rendered)),
        stop_ids=TokenTable.load(sample_dir).stop_ids,
    )


@pytest.fixture(scope="module")
def answers(plan: Plan) -> list[Answer]:
    with Decoding(plan) as decoding:
        return list(decoding)


def test_every_arm_answers(answers: list[Answer]) -> None:
    assert len(answers) == 6
    assert [a.failure for a in answers] == [None] * 6
    for answer in answers:
        assert 0 < len(answer.ids) <= BUDGET
        assert answer.finish in ("stop", "length")
        assert answer.prompt_tokens > 5
        assert answer.reported_tokens == len(answer.ids)
        assert answer.ttft_s is not None and answer.ttft_s > 0
        assert answer.decode_s is not None and answer.decode_s > 0


def test_step_sizes_are_those_of_the_method(answers: list[Answer]) -> None:
    for answer in answers:
        assert sum(answer.steps) == len(answer.ids)
        assert max(answer.steps) <= (1 if answer.arm == "plain" else 3)
    assert any(max(a.steps) > 1 for a in answers if a.arm == "mtp@2")


def test_counters_are_the_runtimes_own_and_unknown_for_plain(answers: list[Answer]) -> None:
    for answer in answers:
        if answer.arm == "plain":
            assert (answer.accepted, answer.drafted) == (None, None)
        else:
            assert answer.drafted is not None and answer.accepted is not None
            assert 0 <= answer.accepted <= answer.drafted > 0
    assert any(a.accepted for a in answers)


def test_text_stream_and_ids_agree(answers: list[Answer], sample_dir: Path) -> None:
    tokens = TokenTable.load(sample_dir)
    for answer in answers:
        assert answer.text == answer.streamed == tokens.decode(answer.ids)


def test_plain_repeats_itself(answers: list[Answer]) -> None:
    by_key = {a.key: a for a in answers if a.arm == "plain"}
    for (arm, task, prompt, _, session, probe), answer in by_key.items():
        assert by_key[(arm, task, prompt, 1, session, probe)].ids == answer.ids


def test_prompts_are_rendered_by_the_models_template(plan: Plan, known_texts: tuple[str, str]) -> None:
    for text, asked in zip(known_texts, plan.asked, strict=True):
        assert text in asked.text
        assert asked.text.rstrip().endswith("assistant")


def test_what_the_device_makes_of_settings_is_reported(sample_dir: Path) -> None:
    model = inspect_model(sample_dir)
    default = prepare(model, ()).in_force
    assert default["INFERENCE_PRECISION_HINT"] in ("f32", "bf16", "f16")
    given = prepare(
        model, (), properties={"KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    )
    assert given.in_force["KV_CACHE_PRECISION"] == "f32"
    assert given.in_force["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == "0"
    assert set(given.versions) == {"openvino", "openvino-genai", "openvino-tokenizers"}
    assert given.device_name


@pytest.mark.parametrize(
    ("properties", "device", "words"),
    [
        ({"NO_SUCH_PROPERTY": "1"}, "CPU", "Unsupported property NO_SUCH_PROPERTY"),
        ({"KV_CACHE_PRECISION": "f7"}, "CPU", "Wrong value f7"),
        ({}, "NOSUCH", "--device NOSUCH: expected one of the devices"),
    ],
)
def test_settings_that_the_engine_refuses_are_a_sentence(
    properties: dict[str, str], device: str, words: str, sample_dir: Path
) -> None:
    with pytest.raises(PrepareError, match=words) as caught:
        prepare(inspect_model(sample_dir), (), device=device, properties=properties)
    assert "Traceback" not in str(caught.value)
    assert "Exception from" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "expected a chat template"),
        ("{{ raise_exception('no') }}", "its chat template failed: no"),
        ("{% for", "its chat template failed"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "its chat template failed"),
        ("{{ 'a' * 20_000_000_000 }}", "its chat template failed"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "it was ended",
        ),
    ],
    ids=["none", "raises", "syntax", "escape", "memory", "endless"],
)
def test_a_template_that_fails_is_a_sentence(
    template: str | None, words: str, sample_dir: Path, tmp_path: Path
) -> None:
    for file in sample_dir.iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).symlink_to(file)
    if template is not None:
        (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(PrepareError, match=words):
        prepare(inspect_model(tmp_path), ("hi",), timeout_s=10 if template and "99999" in template else 180)


def test_thinking_is_switched_off_where_the_template_can(sample_dir: Path, tmp_path: Path) -> None:
    for file in sample_dir.iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / "chat_template.jinja").write_text(
        "{{ messages[0].content }}|{{ enable_thinking }}|{{ add_generation_prompt }}"
    )
    assert prepare(inspect_model(tmp_path), ("hi",)).rendered == ("hi|False|True",)


def test_a_model_that_the_engine_cannot_build_is_an_error_at_build(tmp_path: Path) -> None:
    build = Build(
        model=str(tmp_path), head=None, method="plain", k=0, device="CPU", properties={}, scheduler={}, stop_ids=()
    )  # fmt: skip
    engine = EngineProcess(build)
    engine.start()
    failure = engine.ready()
    engine.kill()
    assert failure is not None
    assert (failure.kind, failure.stage) == ("error", "build")
    assert str(tmp_path) in failure.message


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_dies_with_its_parent_and_not_of_its_ctrl_c(how: int, plan: Plan, repo: Path) -> None:
    code = (
        "import sys, time, msgspec\n"
        "from evals.engine.process import EngineProcess\n"
        "from evals.engine.protocol import Build\n"
        "engine = EngineProcess(msgspec.json.decode(sys.argv[1], type=Build))\n"
        "engine.start(); assert engine.ready() is None; print(engine.pid, flush=True); time.sleep(600)\n"
    )
    import msgspec

    order = msgspec.json.encode(plan.build(plan.arms[0])).decode()
    parent = subprocess.Popen(
        [sys.executable, "-c", code, order], stdout=subprocess.PIPE, text=True, cwd=repo
    )
    assert parent.stdout is not None
    engine = psutil.Process(int(parent.stdout.readline()))
    os.kill(engine.pid, signal.SIGINT)
    psutil.wait_procs([engine], timeout=6)
    assert engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE
    parent.send_signal(how)
    parent.wait()
    parent.stdout.close()
    psutil.wait_procs([engine], timeout=30)
    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE
