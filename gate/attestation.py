"""What a verdict says, as in-toto statements that a deploy step can hold against the very bytes it deploys.

Two statements are made. `attestation.json` is a test result (https://in-toto.io/attestation/test-result/v0.1) and
fixes everything that the verdict holds for: the digests of the target and of each head are its subjects; its
configuration names verdict.json by digest, the run's identity, the policy, each task, and each arm whole (K, device,
properties with the KV precision and precision hints, scheduler, versions of the runtime). `attestation.svr.json`
(https://in-toto.io/attestation/svr/v0.1) says "may be served" to consumers that ask for no more, and exists only
where that is so.

What can't be read never passes: the result is PASSED for `serve` alone, WARNED for `serve_with_limits` (the limits
stand with the tests), FAILED for the rest, since the format has no fourth word. A task that is inconclusive stands
among neither the passed nor the failed tests; `decision` tells the two apart.

Without a signature a statement guards against accidents and mix-ups, not against somebody who may write the file:
`gate.signing` wraps it where a key is given.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from evals.types import SPECULATIVE, Manifest
from gate.signing import sign
from gate.types import Decision, TaskVerdict, Verdict

ATTESTATION, SUMMARY = "attestation.json", "attestation.svr.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
TEST_RESULT_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
SVR_TYPE = "https://in-toto.io/attestation/svr/v0.1"
RESULTS: dict[Decision, str] = {
    "serve": "PASSED",
    "serve_with_limits": "WARNED",
    "do_not_serve": "FAILED",
    "inconclusive": "FAILED",
}


class AttestationError(ValueError):
    """A statement can't be made from this run, or a file isn't a statement of ours."""


def test_result_statement(verdict: Verdict, manifest: Manifest, verdict_json: bytes) -> bytes:
    """The test-result statement for a run. `verdict_json` are the bytes of the run's verdict.json.

    Raises AttestationError where the three don't belong together, or the run never learned what it decoded.
    """
    served = [arm.name for arm in manifest.arms if arm.endpoint is not None]
    if served:
        raise AttestationError(
            f"expected a run of a model directory, found arms that were asked over HTTP ({', '.join(served)}): nobody "
            "knows which bytes answered, so there is nothing to attest"
        )
    if verdict.manifest_identity != manifest.identity():
        raise AttestationError(
            f"expected the verdict of the run {manifest.identity()[:12]}, found one of "
            f"{verdict.manifest_identity[:12]}: decide the run again (gate grade)"
        )
    tests = [_test(t) for t in verdict.tasks]
    verdict_entry = {
        "name": "verdict.json",
        "mediaType": "application/json",
        "digest": {"sha256": sha256(verdict_json)},
        "annotations": {
            "decision": verdict.decision,
            "created": verdict.created,
            "toolVersion": verdict.tool_version,
            "k": list(verdict.k),
            "worthIt": verdict.worth_it,
            "reasons": list(verdict.reasons),
            "caveats": list(verdict.caveats),
            "tests": tests,
        },
    }
    run_entry = {
        "name": "run",
        "digest": {"sha256": manifest.identity()},
        "annotations": {
            "schema": manifest.schema,
            "prompts": {name: list(ids) for name, ids in manifest.prompts.items()},
            "repeats": manifest.repeats,
            "policy": manifest.policy_digest,
            "inForce": manifest.environment.get("in_force", {}),
            **({} if manifest.filler_seed is None else {"fillerSeed": manifest.filler_seed}),
        },
    }
    configuration = [
        verdict_entry,
        run_entry,
        {"name": "policy", "digest": {"sha256": verdict.policy_digest}},
        *({"name": f"task/{name}", "digest": {"sha256": d}} for name, d in sorted(manifest.tasks.items())),
        *(
            {
                "name": f"arm/{a.name}",
                "digest": {"sha256": a.identity()},
                "annotations": a.described(),
            }
            for a in manifest.arms
        ),
    ]
    predicate = {
        "result": RESULTS[verdict.decision],
        "configuration": configuration,
        "passedTests": [_name(t) for t in verdict.tasks if _list_of(t) == "passed"],
        "warnedTests": [_name(t) for t in verdict.tasks if _list_of(t) == "warned"],
        "failedTests": [_name(t) for t in verdict.tasks if _list_of(t) == "failed"],
    }
    statement = _statement(verdict, manifest, TEST_RESULT_TYPE, predicate)
    configuration.append({"name": "statement", "digest": {"sha256": sha256(spell(statement))}})
    validate(statement)
    return spell(statement)


def svr_statement(verdict: Verdict, manifest: Manifest, attestation: bytes) -> bytes | None:
    """The summary for consumers that only ask whether it may be served; None where it may not be.

    `attestation` are the bytes of attestation.json, which the summary names by digest: it has the K and the rest.
    """
    if verdict.decision not in ("serve", "serve_with_limits"):
        return None
    word = "MTP_GATE_SERVE" if verdict.decision == "serve" else "MTP_GATE_SERVE_WITH_LIMITS"
    predicate = {
        "verifier": {
            "id": f"pkg:pypi/mtp-gate@{verdict.tool_version}",
            "policy": {"name": "policy", "digest": {"sha256": verdict.policy_digest}},
        },
        "timeCreated": verdict.created,
        "properties": [word, *(f"MTP_GATE_K_{k}" for k in verdict.k)],
        "inputAttestations": [{"name": "attestation.json", "digest": {"sha256": sha256(attestation)}}],
    }
    statement = _statement(verdict, manifest, SVR_TYPE, predicate)
    validate(statement)
    return spell(statement)


def write_attestations(
    run_dir: Path,
    verdict: Verdict,
    manifest: Manifest,
    *,
    private_key: bytes | None = None,
    passphrase: bytes | None = None,
) -> tuple[Path, ...]:
    """Write a run's statements beside its verdict.json, signed where a PEM private key is given; return their paths.

    A summary of an earlier verdict that no longer holds is removed. Raises AttestationError, gate.signing.SigningError.
    """
    verdict_json = (run_dir / "verdict.json").read_bytes()
    if msgspec.json.encode(msgspec.json.decode(verdict_json, type=Verdict)) != msgspec.json.encode(verdict):
        raise AttestationError(
            f"{run_dir / 'verdict.json'}: expected the verdict that is to be attested, found another"
        )
    attestation = _wrap(test_result_statement(verdict, manifest, verdict_json), private_key, passphrase)
    summary = svr_statement(verdict, manifest, attestation)
    (run_dir / SUMMARY).unlink(missing_ok=True)
    written = [_write(run_dir / ATTESTATION, attestation)]
    if summary is not None:
        written.append(_write(run_dir / SUMMARY, _wrap(summary, private_key, passphrase)))
    return tuple(written)


def _wrap(statement: bytes, private_key: bytes | None, passphrase: bytes | None) -> bytes:
    return statement if private_key is None else sign(statement, private_key, passphrase)


def _write(path: Path, data: bytes) -> Path:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
    return path


def spell(statement: dict[str, Any]) -> bytes:
    """The one spelling of a statement: sorted keys, two spaces, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(statement, order="sorted")) + b"\n"


def validate(statement: dict[str, Any]) -> None:
    """Hold a statement against in-toto's own schema. Raises AttestationError; an unknown field is one too."""
    from google.protobuf import json_format
    from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement

    try:
        message = json_format.ParseDict(statement, statement_pb2.Statement())
        Statement.copy_from_pb(message).validate()
        if statement["predicateType"] == TEST_RESULT_TYPE:
            result = json_format.ParseDict(statement["predicate"], test_result_pb2.TestResult())
            for entry in result.configuration:
                ResourceDescriptor.copy_from_pb(entry).validate()
    except (json_format.Error, ValueError, TypeError, KeyError, RecursionError) as e:
        raise AttestationError(f"not a valid in-toto statement: {e}") from e


def _statement(verdict: Verdict, manifest: Manifest, kind: str, predicate: dict[str, Any]) -> dict[str, Any]:
    heads: dict[str, str] = {}
    for arm in manifest.arms:
        if arm.method in SPECULATIVE and arm.head_digest:
            heads.setdefault(arm.head_digest, f"head/{arm.head}" if arm.head else "head")
    subjects = [("target", verdict.target_digest), *((name, digest) for digest, name in heads.items())]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": _hex(name, digest)}} for name, digest in subjects],
        "predicateType": kind,
        "predicate": predicate,
    }


def _test(task: TaskVerdict) -> dict[str, Any]:
    return {
        "name": _name(task),
        "task": task.task,
        "arm": task.arm,
        "requirement": task.requirement,
        "decision": task.decision,
        "reasons": list(task.reasons),
        "limits": msgspec.to_builtins(task.limits),
    }


def _name(task: TaskVerdict) -> str:
    return f"{task.task} {task.arm}"


def _list_of(task: TaskVerdict) -> str:
    """Which of the format's lists a task belongs to; "" where it couldn't be read."""
    if task.decision == "inconclusive":
        return ""
    if task.decision == "serve":
        return "passed"
    return "warned" if task.decision == "serve_with_limits" or task.requirement == "advisory" else "failed"


def _hex(what: str, digest: str) -> str:
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise AttestationError(
            f"expected the SHA-256 of the {what} as 64 hex digits, found {digest!r}: such a run can't be attested"
        )
    return digest


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()
