"""The threat: an engine of ours that changes the answer, drafts with stale state, or counts what it didn't do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import openvino as ov
import pytest

from evals.arms import build_arms, control_paths
from evals.control import control_head
from evals.decode import Asked, Decoding, Plan
from evals.digest import digest_model
from evals.engine import paged
from evals.engine.drafter import PagedLayer, StatefulLayer, load_layer
from evals.engine.prepare import prepare
from evals.engine.process import WORKERS, EngineProcess
from evals.engine.protocol import Ask, Build, Done, Problem
from evals.engine.split import SplitEngine
from evals.engine.target import Target, load_embeddings
from evals.engines import SPLIT
from evals.heads import borrowed_head
from evals.model_dir import inspect_model
from evals.replay import PagedReplay
from evals.tokens import TokenTable
from evals.types import Answer, Failure
from tests.evals.split_dirs import LAYER, LM_HEAD, published_layer, save_lm_head_of, split_sample

pytestmark = pytest.mark.engine
F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
BUDGET = 60


@pytest.fixture(scope="module")
def model_dir(sample_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return split_sample(sample_dir, tmp_path_factory.mktemp("split") / "m")


@pytest.fixture(scope="module")
def rendered(sample_dir: Path, known_texts: tuple[str, str]) -> tuple[str, ...]:
    return prepare(inspect_model(sample_dir), known_texts).rendered


@pytest.fixture(scope="module")
def answers(model_dir: Path, rendered: tuple[str, ...]) -> dict[tuple[str, str], Answer]:
    """By arm and prompt, at f32, in processes of their own."""
    model = inspect_model(model_dir)
    with control_head(model, 1) as control:
        arms = build_arms(digest_model(model), ks=(1, 3), properties=F32, controls=[control], engine=SPLIT)
        plan = Plan(
            model=model_dir,
            arms=tuple(arm for arm in arms if arm.name != "control@1"),
            repeats={},
            asked=tuple(Asked("t", str(n), text, BUDGET) for n, text in enumerate(rendered)),
            stop_ids=TokenTable.load(model_dir).stop_ids,
            heads=control_paths(arms, [control]),
        )
        with Decoding(plan) as decoding:
            return {(a.arm, a.prompt): a for a in decoding}


Maker = Callable[..., SplitEngine]


@pytest.fixture(scope="module")
def made() -> dict[str, SplitEngine]:
    return {}


@pytest.fixture
def engine(model_dir: Path, made: dict[str, SplitEngine]) -> Maker:
    """Engines in this process, built once each."""

    def make(k: int = 0, head: Path | None = None, **changes: object) -> SplitEngine:
        build = Build(
            model=str(model_dir),
            head=str(head or model_dir) if k else None,
            method="mtp" if k else "plain",
            k=k,
            device="CPU",
            properties=F32,
            scheduler={},
            stop_ids=(),
        )
        build = msgspec.structs.replace(build, **changes)
        key = str(build)
        if key not in made:
            made[key] = SplitEngine(build)
        return made[key]

    return make


def decode(engine: SplitEngine, text: str, budget: int = BUDGET) -> Done:
    done = engine.decode(Ask(text=text, max_new_tokens=budget), lambda tokens: None)
    assert isinstance(done, Done)
    return done


def test_at_f32_every_arm_gives_plains_tokens(answers: dict[tuple[str, str], Answer]) -> None:
    assert len(answers) == 8
    for (arm, prompt), answer in answers.items():
        assert answer.failure is None
        assert answer.ids == answers["plain", prompt].ids, arm
        assert answer.text == answer.streamed and answer.prompt_tokens > 5
        assert answer.reported_tokens == len(answer.ids) == sum(answer.steps) > 20


def test_plain_is_its_own_decode_at_width_one(
    model_dir: Path, engine: Maker, rendered: tuple[str, ...]
) -> None:
    model, text = inspect_model(model_dir), rendered[0]
    plain = engine(properties={})
    done = decode(plain, text)
    assert set(done.steps) == {1} and (done.accepted, done.drafted) == (None, None)
    prompt = [int(i) for i in plain._tokenizer.encode(text).input_ids.data[0]]
    replay = PagedReplay(model.path, model.target, "CPU", {}, batch=4096)
    own = [int(replay.start(prompt)[-1].argmax())]
    while len(own) < len(done.ids):
        own.append(int(replay.step([own[-1]], 1)[-1].argmax()))
    assert tuple(own) == done.ids


def test_drafts_are_accepted_and_a_permuted_heads_are_not(answers: dict[tuple[str, str], Answer]) -> None:
    def rate(arm: str) -> float:
        ours = [a for (name, _), a in answers.items() if name == arm]
        assert all(a.drafted and a.accepted is not None for a in ours)
        return sum(a.accepted or 0 for a in ours) / sum(a.drafted or 0 for a in ours)

    assert rate("mtp@1") > 0.5 and rate("mtp@3") > 0.2
    assert rate("control@3") < 0.02
    assert max(max(a.steps) for (name, _), a in answers.items() if name == "mtp@3") > 2


def test_counters_add_up(answers: dict[tuple[str, str], Answer]) -> None:
    for (arm, _), answer in answers.items():
        if arm == "plain":
            assert (answer.accepted, answer.drafted) == (None, None)
        elif answer.finish == "length":
            assert answer.accepted == sum(step - 1 for step in answer.steps[:-1])


@pytest.mark.parametrize("k", [1, 5])
def test_nothing_is_drafted_beyond_the_budget(
    k: int, engine: Maker, rendered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = engine(k)._drafter
    assert drafter is not None
    asked: list[int] = []
    draft = drafter.draft
    monkeypatch.setattr(drafter, "draft", lambda *given: asked.append(given[2]) or draft(*given))
    for budget in (1, 2, 3, 4):
        asked.clear()
        done = decode(engine(k), rendered[1], budget)
        assert len(done.ids) == budget
        assert done.ids == decode(engine(), rendered[1], budget).ids
        left = [budget - sum(done.steps[:at]) - 1 for at in range(1, len(done.steps))]
        assert asked == [min(k, room) for room in left if room]
        assert done.drafted == sum(asked[: len(done.steps) - 2])  # but for the step that ends the answer
        assert (done.accepted or 0) <= done.drafted


def test_a_stop_inside_an_accepted_draft_ends_the_answer(engine: Maker, rendered: tuple[str, ...]) -> None:
    whole = decode(engine(3), rendered[1])
    at, inside = 0, None
    for step in whole.steps:
        for place in range(at, at + step - 2):  # an accepted draft, and another one after it
            if whole.ids.index(whole.ids[place]) == place and place > 3:
                inside = inside or place
        at += step
    assert inside is not None, "expected an accepted draft of a token that wasn't said before"
    stop = whole.ids[inside]
    done = decode(engine(3, stop_ids=(stop,)), rendered[1])
    assert done.ids == whole.ids[: inside + 1] == decode(engine(0, stop_ids=(stop,)), rendered[1]).ids
    assert sum(done.steps) == len(done.ids)
    assert done.accepted == sum(step - 1 for step in done.steps[:-1])  # of the last step none is counted


def test_one_request_leaves_nothing_for_the_next(engine: Maker, rendered: tuple[str, ...]) -> None:
    first = decode(engine(3), rendered[0])
    decode(engine(3), rendered[1], 33)
    again = decode(engine(3), rendered[0])
    assert (again.ids, again.steps, again.accepted) == (first.ids, first.steps, first.accepted)


def test_a_prompt_fed_in_pieces_drafts_as_one_fed_at_once(engine: Maker, rendered: tuple[str, ...]) -> None:
    whole = decode(engine(3), rendered[1])
    pieces = decode(engine(3, scheduler={"max_num_batched_tokens": 7}), rendered[1])
    assert (pieces.ids, pieces.steps) == (whole.ids, whole.steps)


def test_a_cache_that_the_settings_bound_refuses_and_the_engine_lives_on(
    model_dir: Path, rendered: tuple[str, ...]
) -> None:
    build = Build(
        model=str(model_dir), head=str(model_dir), method="mtp", k=2, device="CPU", properties=F32,
        scheduler={"num_kv_blocks": 3}, stop_ids=(),
    )  # fmt: skip
    process = EngineProcess(build, command=WORKERS[SPLIT])
    process.start()
    try:
        assert process.ready() is None
        refused = process.ask(rendered[1], 200)
        assert isinstance(refused, Failure) and refused.kind == "refused"
        assert "holds 96: raise --scheduler cache_size" in refused.message
        assert isinstance(process.ask(rendered[1], 8), Done)
    finally:
        process.kill()


def test_memory_that_runs_out_is_a_sentence(
    engine: Maker, rendered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclasses.dataclass
    class Memory:
        available: int = 65 << 20

    fresh = engine(1, scheduler={"num_kv_blocks": 4096})
    monkeypatch.setattr(paged.psutil, "virtual_memory", Memory)
    problem = fresh.decode(Ask(text=rendered[0] * 40, max_new_tokens=8), lambda tokens: None)
    assert isinstance(problem, Problem) and problem.kind == "refused"
    assert "MiB of memory, 65 MiB are free" in problem.message


@pytest.mark.parametrize("kv", ["f32", "u8", "u4"])
def test_caches_that_grow_keep_what_they_hold(kv: str, sample_dir: Path) -> None:
    core = ov.Core()
    properties = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": kv}
    graph = sample_dir / "openvino_language_model.xml"
    embed = load_embeddings(core, sample_dir, "CPU", properties)
    large, small = (Target(core, core.read_model(graph), embed, "CPU", properties) for _ in range(2))
    large.feed([7] * 400)
    large.reset()
    prompt = list(range(20, 80))
    logits = []
    for target in (large, small):
        target.feed(prompt)
        for token in range(30, 70):
            target.feed([token, 5, 6], undoable=True)
            target.keep(1)
        logits.append(np.array(target.feed([9, 8])))
    assert (logits[0] == logits[1]).all()


def test_layers_agree_paged_stateful_and_published(sample_dir: Path, model_dir: Path, tmp_path: Path) -> None:
    published_layer(sample_dir, tmp_path)
    core, file = ov.Core(), model_dir / f"{LAYER}.xml"
    layers = [
        load_layer(core, file, "CPU", F32),
        StatefulLayer(core, core.read_model(file), "CPU", F32),
        load_layer(core, tmp_path / f"{LAYER}.xml", "CPU", F32),
    ]
    assert [type(layer) for layer in layers] == [PagedLayer, StatefulLayer, StatefulLayer]
    hidden, embeds = np.random.default_rng(5).standard_normal((2, 40, 256)).astype(np.float32)
    outputs = []
    for layer in layers:
        layer.rewind(0)
        layer.feed(hidden[:20], embeds[:20])
        layer.feed(hidden[20:25], embeds[20:25])
        layer.rewind(21)
        outputs.append(layer.feed(hidden[30:33], embeds[30:33]))
        assert layer.bytes_per_token == layers[0].bytes_per_token > 0
    for output in outputs[1:]:
        assert output == pytest.approx(outputs[0], abs=1e-4)
    fresh = layers[0]
    fresh.rewind(0)
    fresh.feed(hidden[:20], embeds[:20])
    assert abs(fresh.feed(hidden[30:33], embeds[30:33]) - outputs[0]).max() > 1e-3


def test_every_way_to_come_by_a_head_drafts_alike(
    sample_dir: Path, model_dir: Path, tmp_path: Path, engine: Maker, rendered: tuple[str, ...]
) -> None:
    """The same weights in the exported layout, with a separate lm_head beside it, published, and borrowed."""
    both = split_sample(sample_dir, tmp_path / "both")
    for end in ("xml", "bin"):
        (both / f"{LAYER}.{end}").unlink()
        (both / f"openvino_mtp_model.{end}").symlink_to(sample_dir / f"openvino_mtp_model.{end}")
    published = split_sample(sample_dir, tmp_path / "published")
    published_layer(sample_dir, published)
    own = decode(engine(3), rendered[1])
    with borrowed_head(inspect_model(sample_dir), "other", model_dir) as borrowed:
        assert borrowed.layout == "split"
        others = [
            decode(engine(3, sample_dir), rendered[1]),
            decode(engine(3, both, layout="split"), rendered[1]),
            decode(engine(3, published), rendered[1]),
            decode(engine(3, borrowed.path), rendered[1]),
        ]
    for other in others:
        assert (other.ids, other.steps, other.accepted) == (own.ids, own.steps, own.accepted)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: (d / f"{LAYER}.xml").write_bytes((d / f"{LM_HEAD}.xml").read_bytes()), "MTP layer"),
        (lambda d: (d / f"{LM_HEAD}.bin").write_bytes(b"x" * 500_000), None),
        (lambda d: (d / f"{LM_HEAD}.xml").unlink(), "openvino_mtp_lm_head"),
    ],
    ids=["a layer that is none", "other bytes", "half a head"],
)
def test_a_broken_head_is_a_failure_and_no_traceback(
    spoil: Callable[[Path], object], words: str | None, sample_dir: Path, tmp_path: Path
) -> None:
    broken = split_sample(sample_dir, tmp_path / "m")
    spoil(broken)
    build = Build(
        model=str(sample_dir), head=str(broken), method="mtp", k=1, device="CPU", properties={}, scheduler={},
        stop_ids=(),
    )  # fmt: skip
    process = EngineProcess(build, command=WORKERS[SPLIT])
    process.start()
    try:
        failure = process.ready()
    finally:
        process.kill()
    if words is None:
        assert failure is None  # weights can't be told from other weights here: acceptance tells
    else:
        assert failure is not None and failure.stage == "build" and failure.kind == "error"
        assert words in failure.message and "Traceback" not in failure.message


def test_the_lm_head_that_is_cut_out_gives_the_targets_logits(sample_dir: Path, tmp_path: Path) -> None:
    save_lm_head_of(sample_dir, tmp_path)
    core = ov.Core()
    graph = core.read_model(sample_dir / "openvino_language_model.xml")
    embed = load_embeddings(core, sample_dir, "CPU", F32)
    target = Target(core, graph, embed, "CPU", F32, hidden=True)
    logits = np.array(target.feed([5, 6, 7, 8]))
    lm_head = core.compile_model(core.read_model(tmp_path / f"{LM_HEAD}.xml"), "CPU", F32)
    assert lm_head(target.hidden()[None])[0][0] == pytest.approx(logits, abs=1e-3)
