"""The threat: a statement that says more than the verdict did, or one that still reads well after it was changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from google.protobuf import json_format
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey

from gate.attestation import (
    ATTESTATION,
    SUMMARY,
    AttestationError,
    spell,
    svr_statement,
    test_result_statement,
    write_attestations,
)
from gate.claims import TamperedError, read_claims
from gate.signing import SignatureError, SigningError, open_envelope, sign

test_result_statement.__test__ = False  # type: ignore[attr-defined]


Reseal = Callable[[dict[str, Any]], bytes]


def statement_of(run: Any) -> dict[str, Any]:
    raw = test_result_statement(run.verdict, run.manifest, run.verdict_json)
    return msgspec.json.decode(raw, type=dict[str, Any])


def keys(kind: str = "ed25519") -> tuple[bytes, bytes]:
    private = (
        ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())
    )
    return (
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )


@pytest.mark.parametrize(
    ("decision", "result"),
    [
        ("serve", "PASSED"),
        ("serve_with_limits", "WARNED"),
        ("do_not_serve", "FAILED"),
        ("inconclusive", "FAILED"),
    ],
)
def test_only_serve_is_a_pass(make_attested_run: Callable[..., Any], decision: str, result: str) -> None:
    run = make_attested_run(decision)
    predicate = statement_of(run)["predicate"]
    assert predicate["result"] == result
    lists = {name: predicate[name] for name in ("passedTests", "warnedTests", "failedTests")}
    both = ["csv mtp@1", "prose mtp@1"]
    assert lists == {
        "passedTests": both if decision == "serve" else [],
        "warnedTests": both if decision == "serve_with_limits" else [],
        "failedTests": both if decision == "do_not_serve" else [],
    }


def test_an_advisory_task_that_fails_is_a_warning(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run("serve", tests={"mtp@1": "do_not_serve"}, requirement="advisory")
    predicate = statement_of(run)["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["warnedTests"] == ["csv mtp@1", "prose mtp@1"]


def test_it_is_what_in_toto_calls_a_test_result(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run()
    statement = statement_of(run)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    message = json_format.ParseDict(statement["predicate"], test_result_pb2.TestResult())
    assert [c.name for c in message.configuration] == [
        "verdict.json",
        "run",
        "policy",
        "task/csv",
        "task/prose",
        "arm/plain",
        "arm/mtp@1",
        "statement",
    ]


def test_it_fixes_what_the_verdict_holds_for(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run(ks=(1, 3))
    claims = read_claims(test_result_statement(run.verdict, run.manifest, run.verdict_json))
    assert claims.target_digest == run.verdict.target_digest
    assert claims.heads == {"head": run.verdict.head_digests["mtp@1"]}
    assert claims.k == (1, 3)
    assert claims.arms == run.manifest.arms
    assert claims.tasks == run.manifest.tasks
    assert claims.policy_digest == run.verdict.policy_digest
    assert claims.manifest_identity == run.manifest.identity()
    assert claims.in_force["KV_CACHE_PRECISION"] == "f16"
    assert claims.decision == "serve"


def test_a_run_with_filler_before_its_prompts_is_known_by_its_seed(
    make_attested_run: Callable[..., Any],
) -> None:
    run = make_attested_run()
    manifest = msgspec.structs.replace(run.manifest, filler_seed=7)
    verdict = msgspec.structs.replace(run.verdict, manifest_identity=manifest.identity())
    statement = test_result_statement(verdict, manifest, run.verdict_json)
    assert read_claims(statement).manifest_identity == manifest.identity() != run.manifest.identity()


def test_no_path_of_this_machine_is_in_it(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run()
    raw = test_result_statement(run.verdict, run.manifest, run.verdict_json)
    assert str(run.model).encode() not in raw
    assert str(run.path.parent).encode() not in raw


def test_a_head_that_was_named_keeps_its_name(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run()
    arms = tuple(
        msgspec.structs.replace(a, head="int4" if a.method == "mtp" else None) for a in run.manifest.arms
    )
    manifest = msgspec.structs.replace(run.manifest, arms=arms)
    verdict = msgspec.structs.replace(run.verdict, manifest_identity=manifest.identity())
    claims = read_claims(test_result_statement(verdict, manifest, msgspec.json.encode(verdict)))
    assert claims.heads == {"head/int4": run.verdict.head_digests["mtp@1"]}


def test_the_verdict_of_another_run_is_refused(make_attested_run: Callable[..., Any]) -> None:
    run, other = make_attested_run(), make_attested_run(ks=(2,), name="other")
    with pytest.raises(
        AttestationError, match=r"expected the verdict of the run .*, found one of .*gate grade"
    ):
        test_result_statement(run.verdict, other.manifest, run.verdict_json)


@pytest.mark.parametrize("digest", ["", "unknown", "A" * 64, "a" * 63])
def test_a_run_that_never_learned_its_bytes_is_refused(
    make_attested_run: Callable[..., Any], digest: str
) -> None:
    run = make_attested_run(target_digest=digest)
    with pytest.raises(AttestationError, match="expected the SHA-256 of the target"):
        test_result_statement(run.verdict, run.manifest, run.verdict_json)


@pytest.mark.parametrize("decision", ["do_not_serve", "inconclusive"])
def test_no_summary_where_it_may_not_be_served(make_attested_run: Callable[..., Any], decision: str) -> None:
    run = make_attested_run(decision)
    assert svr_statement(run.verdict, run.manifest, b"{}") is None


@pytest.mark.parametrize(
    ("decision", "word"), [("serve", "MTP_GATE_SERVE"), ("serve_with_limits", "MTP_GATE_SERVE_WITH_LIMITS")]
)
def test_the_summary_says_so_much_and_no_more(
    make_attested_run: Callable[..., Any], decision: str, word: str
) -> None:
    run = make_attested_run(decision)
    attestation, summary = (p.read_bytes() for p in write_attestations(run.path, run.verdict, run.manifest))
    statement = msgspec.json.decode(summary)
    assert statement["predicateType"] == "https://in-toto.io/attestation/svr/v0.1"
    assert statement["subject"] == msgspec.json.decode(attestation)["subject"]
    assert statement["predicate"]["properties"] == [word, "MTP_GATE_K_1"]
    assert statement["predicate"]["verifier"]["id"] == "pkg:pypi/mtp-gate@0.1.0"
    assert statement["predicate"]["timeCreated"] == run.verdict.created


def test_a_summary_of_an_earlier_verdict_does_not_stay(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run()
    write_attestations(run.path, run.verdict, run.manifest)
    assert (run.path / SUMMARY).exists()
    blocked = msgspec.structs.replace(run.verdict, decision="do_not_serve")
    (run.path / "verdict.json").write_bytes(msgspec.json.encode(blocked))
    assert write_attestations(run.path, blocked, run.manifest) == (run.path / ATTESTATION,)
    assert not (run.path / SUMMARY).exists()


def test_a_verdict_that_is_not_the_one_on_disk_is_refused(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run("do_not_serve")
    with pytest.raises(AttestationError, match="found another"):
        write_attestations(run.path, msgspec.structs.replace(run.verdict, decision="serve"), run.manifest)
    assert not (run.path / ATTESTATION).exists()


def test_a_summary_is_not_taken_for_the_statement(make_attested_run: Callable[..., Any]) -> None:
    run = make_attested_run()
    _, summary = write_attestations(run.path, run.verdict, run.manifest)
    with pytest.raises(AttestationError, match=r"give attestation\.json"):
        read_claims(summary.read_bytes())


def test_another_k_with_a_fitting_checksum_is_caught(
    make_attested_run: Callable[..., Any], reseal: Reseal
) -> None:
    statement = statement_of(make_attested_run())
    assert read_claims(reseal(statement))
    (arm,) = (e for e in statement["predicate"]["configuration"] if e["name"] == "arm/mtp@1")
    arm["annotations"]["k"] = 5
    with pytest.raises(TamperedError, match=r"arm/mtp@1: its settings aren't"):
        read_claims(reseal(statement))


def test_another_task_with_a_fitting_checksum_is_caught(
    make_attested_run: Callable[..., Any], reseal: Reseal
) -> None:
    statement = statement_of(make_attested_run())
    (task,) = (e for e in statement["predicate"]["configuration"] if e["name"] == "task/csv")
    task["digest"]["sha256"] = "e" * 64
    with pytest.raises(TamperedError, match="the run's identity"):
        read_claims(reseal(statement))


@pytest.mark.parametrize("subject", [0, 1])
def test_other_subjects_with_a_fitting_checksum_are_caught(
    make_attested_run: Callable[..., Any], reseal: Reseal, subject: int
) -> None:
    statement = statement_of(make_attested_run())
    statement["subject"][subject]["digest"]["sha256"] = "e" * 64
    with pytest.raises(TamperedError, match="its subjects aren't"):
        read_claims(reseal(statement))


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"\n  ", b"\n\t "), (b'"csv', b'"\\u0063sv'), (b"PASSED", b"PASSED\xc2\xa0"), (b"}\n", b"}\n\n")],
)
def test_another_spelling_is_caught(make_attested_run: Callable[..., Any], old: bytes, new: bytes) -> None:
    run = make_attested_run()
    raw = test_result_statement(run.verdict, run.manifest, run.verdict_json)
    assert old in raw
    with pytest.raises(TamperedError):
        read_claims(new.join(raw.rsplit(old, 1)))


def test_an_entry_given_twice_is_caught(make_attested_run: Callable[..., Any]) -> None:
    statement = statement_of(make_attested_run())
    statement["predicate"]["configuration"].append(statement["predicate"]["configuration"][-1])
    with pytest.raises(TamperedError):
        read_claims(spell(statement))


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"_type": "x"}', b"[" * 100_000, b'{"_type":' * 50_000],
)
def test_what_is_no_statement_is_refused_with_a_sentence(raw: bytes) -> None:
    with pytest.raises(AttestationError, match="expected an in-toto statement"):
        read_claims(raw)


def test_a_statement_without_what_it_fixes_is_refused(make_attested_run: Callable[..., Any]) -> None:
    for missing in ("verdict.json", "run", "policy", "statement"):
        statement = statement_of(make_attested_run(name=f"without-{missing}"))
        configuration = statement["predicate"]["configuration"]
        statement["predicate"]["configuration"] = [e for e in configuration if e["name"] != missing]
        with pytest.raises(AttestationError, match=missing):
            read_claims(spell(statement))


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_a_signature_holds_for_its_key_only(kind: str) -> None:
    private, public = keys(kind)
    envelope = sign(b'{"a": 1}', private)
    opened = open_envelope(envelope, public)
    assert opened.payload == b'{"a": 1}'
    assert opened.keyid
    with pytest.raises(SignatureError, match=r"expected a signature of key \w+, found one of key \w+"):
        open_envelope(envelope, keys(kind)[1])


def test_a_key_given_demands_a_signature() -> None:
    with pytest.raises(SignatureError, match="not signed"):
        open_envelope(b'{"_type": "x"}', keys()[1])


def test_a_signature_demands_a_key() -> None:
    with pytest.raises(SigningError, match="give the signer's public key"):
        open_envelope(sign(b"{}", keys()[0]), None)


def test_a_signature_of_another_key_under_this_keys_name_is_caught() -> None:
    (_, public), (other, _) = keys(), keys()
    forged = msgspec.json.decode(sign(b"{}", other))
    forged["signatures"][0]["keyid"] = SSlibKey.from_crypto(load_pem_public_key(public)).keyid
    raw = msgspec.json.format(msgspec.json.encode(forged, order="sorted")) + b"\n"
    with pytest.raises(SignatureError, match="doesn't hold"):
        open_envelope(raw, public)


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.update(payloadType="application/json"),
        lambda e: e.update(signatures=[]),
        lambda e: e.update(signatures=e["signatures"] * 2),
        lambda e: e.update(signatures={}),
        lambda e: e.update(signatures=[1]),
        lambda e: e.pop("payload"),
        lambda e: e.update(payload="*"),
        lambda e: e.update(payload=None),
        lambda e: e.update(more=1),
        lambda e: e["signatures"][0].update(sig="zz"),
        lambda e: e["signatures"][0].pop("keyid"),
        lambda e: e["signatures"].append({"keyid": "other", "sig": "AAAA"}),
    ],
)
def test_a_malformed_envelope_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    private, public = keys()
    fields = msgspec.json.decode(sign(b"{}", private))
    change(fields)
    with pytest.raises(SignatureError):
        open_envelope(msgspec.json.format(msgspec.json.encode(fields, order="sorted")) + b"\n", public)


def test_a_signature_on_something_else_is_no_statement() -> None:
    private, public = keys()
    envelope = Envelope(b"{}", "application/json", {})
    envelope.sign(CryptoSigner(load_pem_private_key(private, None)))
    raw = msgspec.json.format(msgspec.json.encode(envelope.to_dict(), order="sorted")) + b"\n"
    with pytest.raises(SignatureError, match="payload type"):
        open_envelope(raw, public)


@pytest.mark.parametrize(
    "pem", [b"", b"x", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_what_is_no_key_is_refused_with_a_sentence(pem: bytes) -> None:
    with pytest.raises(SigningError, match=r"expected a PEM private key .*openssl"):
        sign(b"{}", pem)
    with pytest.raises(SigningError, match=r"expected a PEM public key .*openssl"):
        open_envelope(sign(b"{}", keys()[0]), pem)


def test_a_key_with_a_passphrase() -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert open_envelope(sign(b"{}", pem, b"secret"), public).payload == b"{}"
    for passphrase in (None, b"wrong"):
        with pytest.raises(SigningError, match="passphrase"):
            sign(b"{}", pem, passphrase)


def test_a_private_key_given_as_the_public_one_is_refused() -> None:
    private, _ = keys()
    with pytest.raises(SigningError, match="pubout"):
        open_envelope(sign(b"{}", private), private)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_where_it_should_not_is_refused_with_a_sentence(
    make_attested_run: Callable[..., Any], reseal: Reseal, tmp_path: Path, data: st.DataObject
) -> None:
    if tmp_path not in MADE:
        MADE[tmp_path] = make_attested_run()
    run = MADE[tmp_path]
    statement = statement_of(run)
    node: Any = statement
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    if data.draw(st.booleans()):
        del node[key]
    else:
        value = data.draw(JSON)
        assume(value != node[key])
        node[key] = value
    try:
        raw = reseal(statement)
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError):
        raw = spell(statement)
    with contextlib.suppress(AttestationError, TamperedError):
        read_claims(raw)


MADE: dict[Path, Any] = {}
