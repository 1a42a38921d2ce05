"""The threat: a configuration that serves a head which the verdict doesn't allow, or that a server reads otherwise."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from evals.engines import GENAI, SPLIT
from gate.allowed import Allowed, AllowedError, allowed
from gate.policy import load_policy
from gate.servers import SERVERS
from gate.types import Finding

OVMS = {
    "models_path", "max_num_batched_tokens", "cache_size", "max_num_seqs", "dynamic_split_fuse", "device",
    "plugin_config", "enable_prefix_caching", "draft_models_path", "draft_device", "cache_interval_multiplier",
}  # fmt: skip
"""Of LLMCalculatorOptions (model_server, src/llm/llm_calculator.proto)."""

ARCINT = {
    "--model",
    "--device",
    "--parallel",
    "--n-ctx",
    "--paged-kv",
    "--prefix-cache-mib",
    "--mtp",
    "--mtp-layer",
    "--temp",
}
"""Of arcint's usage text (0.5.12)."""


@pytest.fixture
def decide(make_attested_run: Callable[..., Any]) -> Callable[..., Allowed]:
    def make(
        decision: str = "serve", *, arm: str | None = None, change: Any = None, **options: Any
    ) -> Allowed:
        run = make_attested_run(
            decision, name=f"run-{len(options)}-{arm}-{decision}".replace("/", "-"), **options
        )
        verdict = run.verdict if change is None else change(run.verdict)
        return allowed(verdict, run.manifest, load_policy(None), arm)

    return make


def text(found: Allowed, server: str) -> str:
    return SERVERS[server](found, "models/mine").text


def on(found: Allowed) -> dict[str, bool]:
    made = {name: server(found, "m") for name, server in SERVERS.items()}
    words = {
        "ovms": "draft_models_path:" in made["ovms"].text,
        "arcint": "--mtp on" in made["arcint"].text,
        "llama.cpp": "--spec-type draft" in made["llama.cpp"].text,
    }
    assert words == {name: config.head for name, config in made.items()}
    return words


def test_what_may_be_served_is_served_with_its_k(decide: Callable[..., Allowed]) -> None:
    found = decide()
    assert (found.head, found.arm.name, found.concurrency, found.depth) == (True, "mtp@1", 1, None)
    assert all(on(found).values())
    assert '"num_assistant_tokens": 1' in text(found, "ovms")
    assert "--spec-draft-n-max 1" in text(found, "llama.cpp")


@pytest.mark.parametrize("decision", ["do_not_serve", "inconclusive"])
def test_no_head_without_a_verdict_for_it(decision: str, decide: Callable[..., Allowed]) -> None:
    found = decide(decision)
    assert not found.head
    assert not any(on(found).values())
    assert decision.replace("_", " ") in found.why
    for name in SERVERS:
        assert "head off" in text(found, name)


def test_a_limit_makes_no_verdict(decide: Callable[..., Allowed]) -> None:
    assert not decide("inconclusive", limits={"mtp@1": {"depth": 4096}}).head
    assert not decide("do_not_serve", limits={"mtp@1": {"depth": 4096}}).head


def test_one_task_that_fails_is_enough(decide: Callable[..., Allowed]) -> None:
    def spoil(verdict: Any) -> Any:
        first, *rest = verdict.tasks
        return msgspec.structs.replace(
            verdict, tasks=(msgspec.structs.replace(first, decision="do_not_serve"), *rest)
        )

    assert not decide(change=spoil).head


def test_advisory_tasks_alone_allow_nothing(decide: Callable[..., Allowed]) -> None:
    found = decide(requirement="advisory")
    assert not found.head
    assert found.why == "no required task was judged"


@pytest.mark.parametrize("code", ["model-changed", "run-incomplete", "nothing-judged"])
def test_a_run_that_is_void_or_not_whole_allows_nothing(code: str, decide: Callable[..., Allowed]) -> None:
    void = Finding(code, "unreadable", "so it is")
    for arm in (None, "mtp@1"):
        found = decide(arm=arm, change=lambda v: msgspec.structs.replace(v, findings=(void,)))
        assert not found.head
        assert code in found.why


def test_arcint_drafts_with_the_layer_that_was_gated(decide: Callable[..., Allowed]) -> None:
    found = decide()

    def by(engine: str) -> str:
        arm = msgspec.structs.replace(found.arm, engine=engine)
        return text(msgspec.structs.replace(found, arm=arm), "arcint")

    assert "--mtp-layer exported" in by(GENAI) and "openvino_mtp_lm_head" in by(GENAI)
    assert "--mtp-layer" not in by(SPLIT)


@pytest.mark.parametrize(
    "limits", [{}, {"depth": 0}, {"depth": "4096"}, {"k": 1}, {"depth": 4096, "humidity": 3}]
)
def test_a_limit_that_is_not_known_to_be_kept_allows_nothing(
    limits: dict[str, Any], decide: Callable[..., Allowed]
) -> None:
    assert not decide("serve_with_limits", limits={"mtp@1": limits}).head


def test_a_depth_limit_is_kept_where_a_server_can_and_said_where_not(decide: Callable[..., Allowed]) -> None:
    found = decide("serve_with_limits", limits={"mtp@1": {"depth": 4096}}, loads=(1, 4))
    assert (found.arm.name, found.concurrency, found.depth) == (
        "mtp@1",
        1,
        4096,
    )  # the load of 4 names no limits
    limits = {name: {"depth": 4096} for name in ("mtp@1", "mtp@1/n4")}
    found = decide("serve_with_limits", limits=limits, loads=(1, 4), ks=(1,))
    assert (found.depth, found.concurrency) == (4096, 4)
    assert "--n-ctx 4096" in text(found, "arcint")
    assert "--no-kv-unified --ctx-size 16384" in text(found, "llama.cpp")
    assert "note: depth: no option on CPU and GPU bounds a prompt: keep requests to 4096" in text(
        found, "ovms"
    )


@pytest.mark.parametrize(
    ("tests", "arm", "load"),
    [
        ({}, "mtp@1/n4", 4),
        ({"mtp@1/n4": "do_not_serve"}, "mtp@1", 1),
        ({"mtp@1": "inconclusive"}, None, None),
    ],
)
def test_no_more_in_flight_than_holds(
    tests: dict[str, str], arm: str | None, load: int | None, decide: Callable[..., Allowed]
) -> None:
    found = decide(tests=tests, loads=(1, 4))
    assert (found.arm.name if found.head else None, found.concurrency) == (arm, load)
    if load is not None:
        assert f"max_num_seqs: {load}" in text(found, "ovms")
        assert f"--parallel {load}" in text(found, "arcint")
        assert f"--parallel {load}" in text(found, "llama.cpp")


def test_the_fastest_is_served_unless_another_is_named(decide: Callable[..., Allowed]) -> None:
    def speeds(verdict: Any) -> Any:
        ratio = {"mtp@1": 1.2, "mtp@3": 1.6}
        tasks = tuple(msgspec.structs.replace(t, speed_ratio=ratio[t.arm]) for t in verdict.tasks)
        return msgspec.structs.replace(verdict, tasks=tasks)

    assert decide(ks=(1, 3), change=speeds).arm.name == "mtp@3"
    assert decide(ks=(1, 3), change=speeds, arm="mtp@1").arm.name == "mtp@1"
    with pytest.raises(AllowedError, match=r"--arm 'mtp@9': expected an arm .* mtp@1, mtp@3"):
        decide(ks=(1, 3), arm="mtp@9")


def test_a_head_that_is_not_worth_it_is_off_unless_it_is_named(decide: Callable[..., Allowed]) -> None:
    def slow(verdict: Any) -> Any:
        tasks = tuple(msgspec.structs.replace(t, speed_ratio=0.8) for t in verdict.tasks)
        return msgspec.structs.replace(verdict, tasks=tasks)

    found = decide(change=slow)
    assert not found.head
    assert "isn't worth it: 0.80 times plain's rate" in found.why
    assert decide(change=slow, arm="mtp@1").head


def test_a_k_that_a_server_does_not_draft_leaves_its_head_off(decide: Callable[..., Allowed]) -> None:
    found = decide(ks=(3,))
    assert on(found) == {"ovms": True, "arcint": False, "llama.cpp": True}
    assert "note: K: arcint drafts one token a pass" in text(found, "arcint")
    looked_up = msgspec.structs.replace(found, arm=msgspec.structs.replace(found.arm, method="prompt_lookup"))
    assert not any(on(looked_up).values())


def test_what_a_server_was_gated_with_is_left_to_that_server(decide: Callable[..., Allowed]) -> None:
    found = decide()
    arm = msgspec.structs.replace(found.arm, method="served", engine="endpoint", device="unknown")
    served = msgspec.structs.replace(found, arm=arm, in_force={})
    assert not any(on(served).values())
    for name in SERVERS:
        assert "whose options the run doesn't know: leave them as they are" in text(served, name)
        assert "unknown" not in text(served, name).splitlines()[-1]
    assert "device:" not in text(served, "ovms")


def test_only_documented_options_are_written(decide: Callable[..., Allowed]) -> None:
    for found in (decide(), decide("do_not_serve")):
        options = set(re.findall(r"^ {10}([a-z_]+):", text(found, "ovms"), re.MULTILINE))
        assert options <= OVMS
        assert options >= {"models_path", "device", "enable_prefix_caching", "plugin_config"}
        arm = msgspec.structs.replace(found.arm, engine=GENAI)
        command = shlex.split(text(msgspec.structs.replace(found, arm=arm), "arcint").splitlines()[-1])
        assert {word for word in command if word.startswith("--")} <= ARCINT
        for name in ("ovms", "arcint"):
            assert "checked against its documentation, not run" in text(found, name)


def test_the_kv_precision_of_the_run_goes_along_or_is_said_to_lack(decide: Callable[..., Allowed]) -> None:
    found = decide()
    assert "KV_CACHE_PRECISION" in text(found, "ovms")
    assert "--paged-kv f16" in text(found, "arcint")
    assert "--cache-type-k f16 --cache-type-v f16" in text(found, "llama.cpp")
    quantised = msgspec.structs.replace(found, in_force={"KV_CACHE_PRECISION": "bf16"})
    assert "note: KV precision: arcint has no bf16" in text(quantised, "arcint")
    quantised = msgspec.structs.replace(found, in_force={"KV_CACHE_PRECISION": "u8"})
    assert "note: KV precision: no u8 here" in text(quantised, "llama.cpp")


def test_hostile_names_end_neither_a_comment_nor_a_word(decide: Callable[..., Allowed]) -> None:
    evil = 'x"; rm -rf /\n$(touch gone)\u2028"$MODEL"'
    found = decide()
    arm = msgspec.structs.replace(found.arm, name=evil, device=evil, head=evil)
    found = msgspec.structs.replace(
        found, arm=arm, why=evil, in_force={"KV_CACHE_PRECISION": evil}, decoded_with=evil
    )
    for name, server in SERVERS.items():
        lines = server(found, evil).text.splitlines()
        if name == "ovms":
            body = [line for line in lines if not line.startswith("#")]
            assert not any(
                "rm -rf" in line for line in body if "device" not in line and "plugin_config" not in line
            )
            continue
        assert all(line.startswith("#") for line in lines[:-1])
        command = shlex.split(lines[-1])
        assert sum("rm -rf" in word for word in command) <= 2
        assert all(word.startswith("x") for word in command if "rm -rf" in word)
