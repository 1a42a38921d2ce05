"""What an attestation.json says, read back strictly: every byte of it is accounted for, or it isn't believed.

A statement has one spelling, carries its own checksum, and each arm and the run hash to the identities it names; so a
change of any byte is an error here, and never another meaning.
"""

from __future__ import annotations

from typing import Any

import msgspec

from evals.types import SPECULATIVE, Arm
from gate.attestation import (
    STATEMENT_TYPE,
    SVR_TYPE,
    TEST_RESULT_TYPE,
    AttestationError,
    sha256,
    spell,
    validate,
)
from gate.types import Decision


class TamperedError(ValueError):
    """A statement of ours whose bytes aren't those that were written."""


class Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decision for one task and one arm, with the limits up to which it holds."""

    name: str
    task: str
    arm: str
    requirement: str
    decision: Decision
    reasons: tuple[str, ...]
    limits: dict[str, Any]


class Claims(msgspec.Struct, frozen=True):
    """What a statement fixes. `heads` maps a subject's name to its digest; digests are SHA-256 in hex."""

    decision: Decision
    created: str
    tool_version: str
    k: tuple[int, ...]
    target_digest: str
    heads: dict[str, str]
    policy_digest: str
    verdict_sha256: str
    manifest_identity: str
    tasks: dict[str, str]
    """task name → digest"""
    in_force: dict[str, str]
    """OpenVINO properties as the device applied them, those included that nobody set (KV precision, hints)"""
    arms: tuple[Arm, ...]
    tests: tuple[Test, ...]

    @property
    def servable(self) -> tuple[Arm, ...]:
        """The speculative arms: those that can be what a deploy serves."""
        return tuple(a for a in self.arms if a.method in SPECULATIVE)


class _Digest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    name: str
    digest: _Digest
    media_type: str = ""
    annotations: dict[str, Any] = {}


class _Predicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    result: str
    configuration: tuple[_Entry, ...]
    passed_tests: tuple[str, ...]
    warned_tests: tuple[str, ...]
    failed_tests: tuple[str, ...]


class _Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    decision: Decision
    created: str
    tool_version: str
    k: tuple[int, ...]
    worth_it: bool | None
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]
    tests: tuple[Test, ...]


class _Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    schema: int
    prompts: dict[str, tuple[str, ...]]
    repeats: dict[str, int]
    policy: str
    in_force: dict[str, str]
    filler_seed: int | None = None


def read_claims(raw: bytes) -> Claims:
    """Read the bytes of a test-result statement (not of an envelope: see `gate.signing`).

    Raises AttestationError where it can't be read as one; TamperedError where it can, and its bytes contradict it.
    """
    statement = _decode(raw)
    if statement.get("_type") != STATEMENT_TYPE:
        raise AttestationError(
            f"expected an in-toto statement, _type {STATEMENT_TYPE}, found {statement.get('_type')!r:.80}"
        )
    if statement.get("predicateType") == SVR_TYPE:
        raise AttestationError(
            "expected a run's attestation.json (a test result), found its summary, which doesn't fix all that was "
            "decided: give attestation.json"
        )
    if statement.get("predicateType") != TEST_RESULT_TYPE:
        raise AttestationError(
            f"expected the predicate type {TEST_RESULT_TYPE}, found {statement.get('predicateType')!r:.120}"
        )
    if spell(statement) != raw:
        raise TamperedError("the statement isn't spelled as `gate` writes it: its bytes were changed")
    validate(statement)
    try:
        predicate = msgspec.convert(statement["predicate"], _Predicate)
        subjects = {
            e.name: e.digest.sha256 for e in msgspec.convert(statement["subject"], tuple[_Entry, ...])
        }
        entries = {e.name: e for e in predicate.configuration}
        verdict = msgspec.convert(entries["verdict.json"].annotations, _Verdict)
        run = msgspec.convert(entries["run"].annotations, _Run)
        arms = {
            name: msgspec.convert(e.annotations, Arm)
            for name, e in entries.items()
            if name.startswith("arm/")
        }
        claims = Claims(
            decision=verdict.decision,
            created=verdict.created,
            tool_version=verdict.tool_version,
            k=verdict.k,
            target_digest=subjects["target"],
            heads={name: digest for name, digest in subjects.items() if name != "target"},
            policy_digest=entries["policy"].digest.sha256,
            verdict_sha256=entries["verdict.json"].digest.sha256,
            manifest_identity=entries["run"].digest.sha256,
            tasks={
                n.removeprefix("task/"): e.digest.sha256 for n, e in entries.items() if n.startswith("task/")
            },
            in_force=run.in_force,
            arms=tuple(arms.values()),
            tests=verdict.tests,
        )
        checksum = entries["statement"].digest.sha256
    except (msgspec.ValidationError, KeyError) as e:
        raise AttestationError(
            f"expected a statement that `gate` wrote, found one without what it fixes: {e}"
        ) from e
    served = [arm.name for arm in arms.values() if arm.endpoint is not None]
    if served:
        raise AttestationError(
            f"expected a statement on a model directory, found one on arms that were asked over HTTP "
            f"({', '.join(served)}), which can't be held against any bytes"
        )
    _check_checksum(statement, checksum)
    for name, arm in arms.items():
        fields = {k: v for k, v in entries[name].annotations.items() if k != "name"}
        if _hash(fields) != entries[name].digest.sha256 or name != f"arm/{arm.name}":
            raise TamperedError(f"{name}: its settings aren't those of the digest that names it")
    identities = [(arm.name, entries[name].digest.sha256) for name, arm in arms.items()]
    if _run_identity(claims, run, identities) != claims.manifest_identity:
        raise TamperedError("the run's identity isn't that of its arms, tasks, prompts and policy")
    digests = {arm.target_digest for arm in claims.arms} | {
        a.head_digest for a in claims.servable if a.head_digest
    }
    if digests != set(subjects.values()):
        raise TamperedError("its subjects aren't the target and the heads of its arms")
    return claims


def _check_checksum(statement: dict[str, Any], checksum: str) -> None:
    configuration = statement["predicate"]["configuration"]
    rest = [e for e in configuration if e["name"] != "statement"]
    bare = {**statement, "predicate": {**statement["predicate"], "configuration": rest}}
    found = sha256(spell(bare))
    if found != checksum or len(rest) + 1 != len(configuration):
        raise TamperedError(
            f"expected a statement with the checksum {checksum[:12]}, found {found[:12]}: it was changed"
        )


def _run_identity(claims: Claims, run: _Run, arms: list[tuple[str, str]]) -> str:
    """`Manifest.identity()`, from what the statement says. Not by way of the types: they may gain fields, and a
    statement that was made before must still hash to what it says."""
    fields = {
        "schema": run.schema,
        "arms": arms,
        "tasks": claims.tasks,
        "prompts": run.prompts,
        "repeats": run.repeats,
        "policy": run.policy,
    }
    return _hash(fields if run.filler_seed is None else {**fields, "filler_seed": run.filler_seed})


def _hash(fields: dict[str, Any]) -> str:
    return sha256(msgspec.json.encode(fields, order="deterministic"))


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise AttestationError(f"expected an in-toto statement (JSON), found something else: {e}") from e
