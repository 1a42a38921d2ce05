"""The threat: a deploy step says yes to bytes, settings or statements other than those that were gated."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.model_dir import ModelDirError
from gate.attestation import ATTESTATION, AttestationError, write_attestations
from gate.served import Served, ServedError, load_served, merge
from gate.signing import SigningError
from gate.verify import Verification, verify

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)  # a day after the verdict


@pytest.fixture
def attested(make_attested_run: Callable[..., Any]) -> Callable[..., Any]:
    def make(*arguments: Any, private_key: bytes | None = None, **options: Any) -> Any:
        run = make_attested_run(*arguments, **options)
        write_attestations(run.path, run.verdict, run.manifest, private_key=private_key)
        return run

    return make


@pytest.fixture(scope="module")
def keys() -> tuple[bytes, bytes]:
    private = Ed25519PrivateKey.generate()
    return (
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )


def ask(run: Any, **options: Any) -> Verification:
    return verify(run.model, run.path / ATTESTATION, **{"now": NOW, **options})


def failed(answer: Verification) -> list[str]:
    return [c.what for c in answer.failed]


def test_the_gated_bytes_may_be_served(attested: Callable[..., Any]) -> None:
    answer = ask(attested())
    assert (answer.exit_code, answer.failed) == (0, ())
    assert answer.sentence.startswith("yes")
    assert {"target", "head", "verdict.json"} <= {c.what for c in answer.checks}
    assert any("not signed" in n for n in answer.notes)
    assert any("k = 1" in n and "KV_CACHE_PRECISION = f16" in n for n in answer.notes)


@pytest.mark.parametrize(
    ("decision", "code"), [("serve", 0), ("serve_with_limits", 1), ("do_not_serve", 1), ("inconclusive", 3)]
)
def test_exit_codes_are_the_designs(attested: Callable[..., Any], decision: str, code: int) -> None:
    assert ask(attested(decision)).exit_code == code


def test_limits_have_to_be_allowed(attested: Callable[..., Any]) -> None:
    run = attested("serve_with_limits", limits={"mtp@1": {"depth": 4096}})
    assert ask(run).exit_code == 1
    answer = ask(run, allow_limits=True)
    assert answer.exit_code == 0
    assert "csv mtp@1: depth 4096" in answer.sentence
    assert any("limit not checked, keep to it" in n for n in answer.notes)


def test_a_limit_counts_whatever_the_whole_says(attested: Callable[..., Any]) -> None:
    assert ask(attested("serve", limits={"mtp@1": {"depth": 4096}})).exit_code == 1
    assert ask(attested("serve_with_limits", tests={"mtp@1": "serve"}, name="whole")).exit_code == 1


@pytest.mark.parametrize(("depth", "code"), [(4096, 0), (4097, 1)])
def test_a_limit_is_held_against_what_is_served(attested: Callable[..., Any], depth: int, code: int) -> None:
    run = attested("serve_with_limits", limits={"mtp@1": {"depth": 4096}})
    answer = ask(run, allow_limits=True, served=Served(depth=depth))
    assert answer.exit_code == code
    assert failed(answer) == ([] if code == 0 else ["depth of csv mtp@1", "depth of prose mtp@1"])


@pytest.mark.parametrize("asked", [Served(depth=512), Served(concurrency=4)])
def test_what_was_not_measured_cannot_be_told(attested: Callable[..., Any], asked: Served) -> None:
    answer = ask(attested(), served=asked)
    assert answer.exit_code == 3
    assert "says nothing of" in answer.sentence


@pytest.mark.parametrize(("loaded", "code"), [("serve", 0), ("do_not_serve", 1), ("inconclusive", 3)])
def test_a_load_that_was_decoded_is_answered_by_its_own_arm(
    attested: Callable[..., Any], loaded: Any, code: int
) -> None:
    run = attested("serve", tests={"mtp@1/n4": loaded}, loads=(1, 4))
    assert ask(run, served=Served(concurrency=4)).exit_code == code
    assert ask(run, served=Served(concurrency=1)).exit_code == 0
    assert ask(run, served=Served(concurrency=2)).exit_code == (code or 3)
    assert any("(mtp@1/n4)" in note and "concurrency = 4" in note for note in ask(run).notes)


@pytest.mark.parametrize(("held", "asked", "code"), [(4096, 4096, 0), (4096, 4097, 3), (None, 512, 3)])
def test_a_depth_that_every_task_held_was_measured(
    attested: Callable[..., Any], held: int | None, asked: int, code: int
) -> None:
    one = attested("serve").verdict.tasks
    deep = [msgspec.structs.replace(t, task=f"{t.task}@{held}", requirement="advisory") for t in one if held]
    assert (
        ask(attested("serve", name="deep", tasks=(*one, *deep)), served=Served(depth=asked)).exit_code == code
    )
    if deep:  # one task of the two did not get there
        part = attested("serve", name="part", tasks=(*one, deep[0]))
        assert ask(part, served=Served(depth=asked)).exit_code == 3


def test_allowing_limits_does_not_allow_a_blocked_arm(attested: Callable[..., Any]) -> None:
    run = attested("serve_with_limits", ks=(1, 3), tests={"mtp@1": "serve", "mtp@3": "do_not_serve"})
    assert ask(run, allow_limits=True, served=Served(k=1)).exit_code == 0
    assert ask(run, allow_limits=True, served=Served(k=3)).exit_code == 1
    answer = ask(run, allow_limits=True)
    assert answer.exit_code == 1
    assert "csv mtp@3" in answer.sentence


def test_allowing_limits_does_not_allow_what_could_not_be_read(attested: Callable[..., Any]) -> None:
    run = attested("serve_with_limits", tests={"mtp@1": "inconclusive"})
    assert ask(run, allow_limits=True).exit_code == 3


def test_a_verdict_on_nothing_is_no_pass(attested: Callable[..., Any]) -> None:
    assert ask(attested("serve", tasks=())).exit_code == 3


@pytest.mark.parametrize(
    ("served", "what"),
    [
        (Served(k=3), "k"),
        (Served(device="GPU.0"), "device"),
        (Served(engine="split"), "engine"),
        (Served(method="draft"), "method"),
        (Served(head="int4"), "head"),
        (Served(kv_cache_precision="u8"), "KV_CACHE_PRECISION"),
        (Served(inference_precision="bf16"), "INFERENCE_PRECISION_HINT"),
        (Served(properties={"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}), "DYNAMIC_QUANTIZATION_GROUP_SIZE"),
        (Served(scheduler={"cache_size": 2}), "cache_size"),
        (Served(scheduler={"cache_size": True}), "cache_size"),
        (Served(scheduler={"max_num_seqs": 2}), "max_num_seqs"),
        (Served(versions={"openvino": "2026.4.2"}), "openvino"),
        (Served(versions={"openvino-tokenizers": "2026.4.1"}), "openvino-tokenizers"),
        (Served(policy="a" * 64), "policy"),
        (Served(tasks={"csv": "a" * 64}), "task csv"),
        (Served(tasks={"mine": "c" * 64}), "task mine"),
    ],
)
def test_each_setting_that_the_statement_fixes_is_compared(
    attested: Callable[..., Any], served: Served, what: str
) -> None:
    answer = ask(attested(), served=served)
    assert answer.exit_code == 1
    assert failed(answer) == [what]
    assert "expected" in answer.sentence and "found" in answer.sentence


def test_settings_that_agree_are_a_yes(attested: Callable[..., Any]) -> None:
    served = Served(
        k=1,
        device="CPU",
        engine="genai",
        method="mtp",
        kv_cache_precision="f16",
        inference_precision="f32",
        policy="b" * 64,
        scheduler={"cache_size": 1, "enable_prefix_caching": False},
        versions={"openvino": "2026.4.1", "openvino-genai": "2026.4.1.0"},
        tasks={"csv": "c" * 64},
    )
    answer = ask(attested(), served=served, policy_digest="b" * 64, tasks={"prose": "d" * 64})
    assert (answer.exit_code, answer.failed) == (0, ())
    assert not any("not compared" in n for n in answer.notes)


def test_policy_and_tasks_can_be_demanded_apart_from_a_file(attested: Callable[..., Any]) -> None:
    run = attested()
    assert failed(ask(run, policy_digest="a" * 64)) == ["policy"]
    assert failed(ask(run, tasks={"csv": "a" * 64, "prose": "d" * 64})) == ["task csv"]


def test_the_arm_that_differs_least_is_named(attested: Callable[..., Any]) -> None:
    answer = ask(attested(ks=(1, 3)), served=Served(k=3, device="GPU.0"))
    assert failed(answer) == ["device"]


@pytest.mark.parametrize(
    ("max_age", "now", "code"),
    [
        (timedelta(days=30), NOW, 0),
        (timedelta.max, NOW, 0),
        (timedelta(days=1), NOW, 0),
        (timedelta(hours=23, minutes=59), NOW, 1),
        (None, NOW + timedelta(days=3650), 0),
        (None, NOW - timedelta(days=1, minutes=4), 0),
        (None, NOW - timedelta(days=1, minutes=6), 1),
    ],
)
def test_age(attested: Callable[..., Any], max_age: timedelta | None, now: datetime, code: int) -> None:
    answer = ask(attested(), max_age=max_age, now=now)
    assert answer.exit_code == code
    assert failed(answer) == (["age"] if code else [])


@pytest.mark.parametrize("created", ["", "yesterday", "2026-11-30T12:00:00"])
def test_a_time_that_cannot_be_read_is_no_age(attested: Callable[..., Any], created: str) -> None:
    with pytest.raises(AttestationError, match="the time of the verdict"):
        ask(attested(created=created), max_age=timedelta(days=1))


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("openvino_model.bin", "target"),
        ("tokenizer.json", "target"),
        ("config.json", "target"),
        ("openvino_mtp_model.bin", "head"),
    ],
)
def test_other_bytes_of_the_model(attested: Callable[..., Any], file: str, what: str) -> None:
    run = attested()
    with (run.model / file).open("ab") as f:
        f.write(b" ")
    answer = ask(run)
    assert answer.exit_code == 1
    assert failed(answer) == [what]


def test_a_file_more_or_less(attested: Callable[..., Any]) -> None:
    run = attested()
    (run.model / "generation_config.json").write_text("{}")
    assert failed(ask(run)) == ["target"]
    (run.model / "generation_config.json").unlink()
    assert ask(run).exit_code == 0
    (run.model / "tokenizer.json").unlink()
    assert failed(ask(run)) == ["target"]


def test_a_model_without_the_head(attested: Callable[..., Any]) -> None:
    run = attested()
    for file in run.model.glob("openvino_mtp_model.*"):
        file.unlink()
    answer = ask(run)
    assert answer.exit_code == 1
    assert failed(answer) == ["head"]


def test_a_head_in_a_directory_of_its_own(attested: Callable[..., Any], tmp_path: Path) -> None:
    run = attested()
    shutil.copytree(run.model, tmp_path / "with-head")
    for file in run.model.glob("openvino_mtp_model.*"):
        file.unlink()
    assert ask(run, head_dir=tmp_path / "with-head").exit_code == 0
    (tmp_path / "with-head" / "openvino_mtp_model.bin").write_bytes(b"x" * 16)
    assert failed(ask(run, head_dir=tmp_path / "with-head")) == ["head"]


def test_a_directory_of_a_head_alone(attested: Callable[..., Any], tmp_path: Path) -> None:
    run = attested()
    (tmp_path / "head").mkdir()
    for file in run.model.glob("openvino_mtp_model.*"):
        file.rename(tmp_path / "head" / file.name)
    assert ask(run, head_dir=tmp_path / "head").exit_code == 0


def test_a_directory_that_is_no_model_is_not_a_no_but_an_error(
    attested: Callable[..., Any], tmp_path: Path
) -> None:
    run = attested()
    with pytest.raises(ModelDirError):
        verify(tmp_path / "nowhere", run.path / ATTESTATION, now=NOW)
    with pytest.raises(ModelDirError):
        ask(run, head_dir=tmp_path / "nowhere")


def test_another_verdict_beside_it(attested: Callable[..., Any], tmp_path: Path) -> None:
    run = attested("do_not_serve")
    better = msgspec.json.encode(msgspec.structs.replace(run.verdict, decision="serve"))
    (run.path / "verdict.json").write_bytes(better)
    answer = ask(run)
    assert answer.exit_code == 1
    assert failed(answer) == ["verdict.json"]


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["tests"][0]["limits"].update(depth=10**6),
        lambda v: v["tests"][0].update(decision="serve"),
        lambda v: v["tests"].pop(),
        lambda v: v.update(decision="serve"),
        lambda v: v.update(created="2026-11-30T23:00:00Z"),
    ],
)
def test_a_statement_that_says_more_than_its_verdict(
    attested: Callable[..., Any],
    reseal: Callable[[dict[str, Any]], bytes],
    change: Callable[[dict[str, Any]], Any],
) -> None:
    run = attested("serve_with_limits", limits={"mtp@1": {"depth": 4096}})
    statement = msgspec.json.decode((run.path / ATTESTATION).read_bytes())
    change(statement["predicate"]["configuration"][0]["annotations"])
    (run.path / ATTESTATION).write_bytes(reseal(statement))
    answer = ask(run, allow_limits=True)
    assert answer.exit_code == 1
    assert [what for what in failed(answer) if what.startswith("verdict.json's")]


def test_a_verdict_that_is_named_must_be_there(attested: Callable[..., Any], tmp_path: Path) -> None:
    run = attested()
    with pytest.raises(AttestationError, match="expected the verdict at"):
        ask(run, verdict=tmp_path / "nowhere.json")


def test_alone_it_says_what_it_did_not_compare(attested: Callable[..., Any], tmp_path: Path) -> None:
    run = attested()
    alone = tmp_path / "alone.json"
    shutil.copy(run.path / ATTESTATION, alone)
    answer = verify(run.model, alone, now=NOW)
    assert answer.exit_code == 0
    assert any("verdict.json was not compared" in n for n in answer.notes)


@pytest.mark.parametrize("content", [None, b"", b"PASSED", b"\x00" * 10, b"{}"])
def test_a_statement_that_cannot_be_read_is_an_error(
    attested: Callable[..., Any], content: bytes | None
) -> None:
    run = attested()
    (run.path / ATTESTATION).unlink()
    if content is not None:
        (run.path / ATTESTATION).write_bytes(content)
    with pytest.raises((AttestationError, SigningError), match="expected"):
        ask(run)


def test_a_huge_file_is_not_read_whole(attested: Callable[..., Any]) -> None:
    run = attested()
    with (run.path / ATTESTATION).open("wb") as f:
        f.truncate(1 << 40)
    with pytest.raises(AttestationError, match="at most"):
        ask(run)


def test_a_signed_statement(attested: Callable[..., Any], keys: tuple[bytes, bytes]) -> None:
    private, public = keys
    run = attested(private_key=private)
    answer = ask(run, public_key=public)
    assert answer.exit_code == 0
    assert answer.signed_by
    assert not any("not signed" in n for n in answer.notes)
    with pytest.raises(SigningError, match="no key was given"):
        ask(run)


def test_an_unsigned_statement_where_a_key_is_demanded(
    attested: Callable[..., Any], keys: tuple[bytes, bytes]
) -> None:
    answer = ask(attested(), public_key=keys[1])
    assert answer.exit_code == 1
    assert "not signed" in answer.sentence


FLIPS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def flipped(path: Path, data: st.DataObject) -> None:
    """Change one byte of a file to any other value."""
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)


def never_verifies(run: Any, path: Path, data: st.DataObject, **options: Any) -> None:
    original = path.read_bytes()
    try:
        flipped(path, data)
        try:
            code = ask(run, allow_limits=True, **options).exit_code
        except (AttestationError, SigningError, ModelDirError):
            code = 2
        assert code in (1, 2)
    finally:
        path.write_bytes(original)
    assert ask(run, allow_limits=True, **options).exit_code == 0


@given(data=st.data())
@FLIPS
def test_no_byte_of_an_unsigned_statement_can_change(
    attested: Callable[..., Any], tmp_path: Path, data: st.DataObject
) -> None:
    run = once(attested, tmp_path)
    never_verifies(run, run.path / ATTESTATION, data)


@given(data=st.data())
@FLIPS
def test_no_byte_of_a_signed_statement_can_change(
    attested: Callable[..., Any], tmp_path: Path, keys: tuple[bytes, bytes], data: st.DataObject
) -> None:
    run = once(attested, tmp_path, private_key=keys[0])
    never_verifies(run, run.path / ATTESTATION, data, public_key=keys[1])


@given(data=st.data())
@FLIPS
def test_no_byte_of_the_verdict_can_change(
    attested: Callable[..., Any], tmp_path: Path, data: st.DataObject
) -> None:
    run = once(attested, tmp_path)
    never_verifies(run, run.path / "verdict.json", data)


@given(data=st.data())
@FLIPS
def test_no_byte_of_the_model_can_change(
    attested: Callable[..., Any], tmp_path: Path, data: st.DataObject
) -> None:
    run = once(attested, tmp_path)
    never_verifies(run, data.draw(st.sampled_from(sorted(run.model.iterdir()))), data)


MADE: dict[Path, Any] = {}


def once(attested: Callable[..., Any], tmp_path: Path, **options: Any) -> Any:
    """One run for all examples of a test."""
    if tmp_path not in MADE:
        MADE[tmp_path] = attested(**options)
    return MADE[tmp_path]


def test_a_served_file(tmp_path: Path) -> None:
    toml = tmp_path / "served.toml"
    toml.write_text('k = 1\ndevice = "GPU.0"\nkv_cache_precision = "u8"\n[properties]\nNUM_STREAMS = "1"\n')
    served = load_served(toml)
    assert served == Served(k=1, device="GPU.0", kv_cache_precision="u8", properties={"NUM_STREAMS": "1"})
    assert served.openvino_properties() == {"NUM_STREAMS": "1", "KV_CACHE_PRECISION": "u8"}
    json = tmp_path / "served.json"
    json.write_bytes(msgspec.json.encode(served))
    assert load_served(json) == served


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k = 0", ">= 1"),
        ('k = "1"', "Expected `int"),
        ("kk = 1", "unknown field `kk`"),
        ("k = ", "served.toml"),
        ('policy = "abc"', "policy"),
        ('kv_cache_precision = "u8"\n[properties]\nKV_CACHE_PRECISION = "f16"', "given twice"),
    ],
)
def test_a_wrong_served_file_is_refused_with_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "served.toml"
    path.write_text(text)
    with pytest.raises(ServedError, match=message):
        load_served(path)
    with pytest.raises(ServedError, match="found none at"):
        load_served(tmp_path / "nowhere.toml")


def test_options_lie_over_the_file() -> None:
    file = Served(k=1, device="CPU", versions={"openvino": "1", "openvino-genai": "1"})
    merged = merge(file, Served(k=3, versions={"openvino": "2"}))
    assert merged == Served(k=3, device="CPU", versions={"openvino": "2", "openvino-genai": "1"})
    with pytest.raises(ServedError, match="given twice"):
        merge(Served(kv_cache_precision="u8"), Served(properties={"KV_CACHE_PRECISION": "f16"}))


# Statements of earlier versions, kept as they were written: old verdicts stay readable.
@pytest.mark.parametrize("signed", [False, True])
def test_a_statement_of_the_first_version_still_verifies(repo: Path, signed: bool) -> None:
    old = repo / "tests" / "fixtures" / "attestation-1"
    key = (old / "key.pub").read_bytes() if signed else None
    statement = old / ("signed.json" if signed else ATTESTATION)

    def code(**options: Any) -> int:
        return verify(
            old / "model", statement, now=NOW, public_key=key, allow_limits=True, **options
        ).exit_code

    assert code(served=Served(k=1, depth=4096, kv_cache_precision="f16")) == 0
    assert code(served=Served(k=1, depth=5000)) == 1
    assert code(served=Served(k=3)) == 1
