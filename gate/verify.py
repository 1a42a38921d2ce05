"""May these bytes be served, by what this statement says? `gate verify`, the question that a deploy step asks.

Nothing of the statement is taken on trust that can be computed: the digests of target and head are taken again from
the directory, verdict.json is hashed where it lies beside the statement, and what the deploy says it will use is held
against the arm that was gated. Every comparison is in the answer, with what was expected and what was found.

Exit codes: 0 serve (with limits too, where `allow_limits`); 1 do not serve, or something doesn't match; 3 the run
could not tell, or what was asked (a depth, a concurrency) was not measured. What can't be read at all is raised, and
is 2. Loophole: without a key, whoever may write the files can write others that match each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from evals.digest import digest_dir, digest_model
from evals.gguf import digest_path
from evals.model_dir import HeadLayout, ModelDirError, inspect_model
from gate.attestation import AttestationError, sha256
from gate.claims import Claims, TamperedError, read_claims
from gate.match import Check, Match, match_served
from gate.served import Served
from gate.signing import SignatureError, open_envelope
from gate.types import Decision

MAX_BYTES = 64 << 20
"""Of a statement or a verdict: far more than a run of 100 arms and 1,000 tasks needs."""

CLOCK_SKEW = timedelta(minutes=5)
"""How far ahead another machine's clock may be before its statement comes from the future."""


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Yes or no, with what was compared. `notes`: what was not compared, and what to keep to."""

    exit_code: int
    sentence: str
    decision: Decision | None
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    signed_by: str | None

    @property
    def may_be_served(self) -> bool:
        return self.exit_code == 0

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if not c.ok)


def verify(
    model_dir: Path,
    attestation: Path,
    *,
    now: datetime,
    head_dir: Path | None = None,
    layout: HeadLayout | None = None,
    verdict: Path | None = None,
    policy_digest: str | None = None,
    tasks: Mapping[str, str] | None = None,
    max_age: timedelta | None = None,
    served: Served | None = None,
    public_key: bytes | None = None,
    allow_limits: bool = False,
) -> Verification:
    """Hold a model directory, and what a deploy will use, against a statement.

    head_dir: where the head lies, if not in model_dir. layout: which head, where there are two. verdict: verdict.json,
    by default the one beside the statement where there is one. tasks: task name → digest that the run must have
    covered. public_key: PEM; the statement must then be signed by it. now: timezone-aware.

    Raises AttestationError, gate.signing.SigningError (a file or key that can't be read) and
    evals.model_dir.ModelDirError (a directory that inspection refuses): exit code 2.
    """
    try:
        opened = open_envelope(_read(attestation, "the statement"), public_key)
        claims = read_claims(opened.payload)
    except (SignatureError, TamperedError) as e:
        check = Check(what="statement", expected="the bytes that were written", found=str(e), ok=False)
        return Verification(1, f"no: {attestation.name}: {e}", None, (check,), (), None)
    notes = (
        []
        if opened.keyid
        else ["not signed: it guards against mix-ups, not against whoever may write these files"]
    )
    checks, heads = _digests(claims, model_dir, head_dir, layout)
    beside = verdict or attestation.with_name("verdict.json")
    if verdict is not None or beside.exists():
        checks += _verdict_checks(claims, beside)
    else:
        notes.append("verdict.json was not compared: it doesn't lie beside the statement")
    checks += _age(claims, now, max_age)
    demanded = {**(served.tasks if served else {}), **(tasks or {})}
    checks += [
        Check.equal(f"task {name}", expected=digest, found=claims.tasks.get(name))
        for name, digest in sorted(demanded.items())
    ]
    for digest in (policy_digest, served.policy if served else None):
        if digest is not None:
            checks.append(Check.equal("policy", expected=digest, found=claims.policy_digest))
    match = match_served(claims, heads, served)
    checks += match.checks
    code, sentence = _conclude(claims, match, [c for c in checks if not c.ok], allow_limits)
    return Verification(code, sentence, claims.decision, tuple(checks), (*notes, *match.notes), opened.keyid)


def _digests(
    claims: Claims, model_dir: Path, head_dir: Path | None, layout: HeadLayout | None
) -> tuple[list[Check], frozenset[str]]:
    """The target's digest compared, and the digests that this deploy's head can be known by."""
    model = digest_path(model_dir, layout)
    checks = [Check.equal("target", expected=claims.target_digest, found=model.target)]
    heads = {model.head} if head_dir is None else {_head_of(head_dir, layout), digest_dir(head_dir)}
    found = frozenset(h for h in heads if h)
    known = frozenset(claims.heads.values())
    if known or found:
        checks.append(
            Check(
                what="head",
                expected=" or ".join(sorted(known)) or "none",
                found=" or ".join(sorted(found & known or found)) or "none",
                ok=bool(found & known),
            )
        )
    return checks, found


def _head_of(head_dir: Path, layout: HeadLayout | None) -> str | None:
    """The head's digest in a directory that has a target too; None in one of a head alone, or of a draft model."""
    try:
        return digest_model(inspect_model(head_dir, need_head=False, layout=layout)).head
    except ModelDirError:
        return None


class _Task(msgspec.Struct, frozen=True):
    """What a statement repeats of a task's verdict."""

    task: str
    arm: str
    requirement: str
    decision: Decision
    reasons: tuple[str, ...]
    limits: dict[str, Any] = {}


class _Verdict(msgspec.Struct, frozen=True):
    """What a statement repeats of verdict.json."""

    decision: Decision
    created: str
    k: tuple[int, ...]
    target_digest: str
    policy_digest: str
    manifest_identity: str
    tasks: tuple[_Task, ...]


def _verdict_checks(claims: Claims, path: Path) -> list[Check]:
    raw = _read(path, "the verdict")
    same = Check.equal("verdict.json", expected=claims.verdict_sha256, found=sha256(raw))
    if not same.ok:
        return [same]
    try:
        verdict = msgspec.json.decode(raw, type=_Verdict)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise AttestationError(f"{path}: expected a verdict, found something else: {e}") from e
    tests = tuple(msgspec.convert(t, _Task, from_attributes=True) for t in claims.tests)
    repeated = [("tests", verdict.tasks, tests)]
    repeated += [
        (n, getattr(verdict, n), getattr(claims, n)) for n in _Verdict.__struct_fields__ if n != "tasks"
    ]
    return [same] + [
        Check.equal(f"verdict.json's {name}", expected=str(theirs), found=str(ours))
        for name, theirs, ours in repeated
        if theirs != ours
    ]


def _age(claims: Claims, now: datetime, max_age: timedelta | None) -> list[Check]:
    try:
        created = datetime.fromisoformat(claims.created)
    except ValueError as e:
        raise AttestationError(
            f"expected the time of the verdict in ISO 8601, found {claims.created!r:.60}"
        ) from e
    if created.tzinfo is None:
        raise AttestationError(
            f"expected the time of the verdict with its time zone, found {claims.created!r}"
        )
    stamp = now.astimezone(UTC).isoformat(timespec="seconds")
    checks = []
    if created > now + CLOCK_SKEW:
        checks.append(
            Check(what="age", expected=f"a verdict made before {stamp}", found=claims.created, ok=False)
        )
    elif max_age is not None:
        expected = f"a verdict made at most {max_age / timedelta(days=1):g} days before {stamp}"
        ok = now - created <= max_age
        checks.append(Check(what="age", expected=expected, found=claims.created, ok=ok))
    return checks


def _conclude(claims: Claims, match: Match, failed: list[Check], allow_limits: bool) -> tuple[int, str]:
    if failed:
        return 1, "no: " + "; ".join(str(c) for c in failed)
    if claims.decision == "do_not_serve":
        return 1, "no: these are the bytes that the gate judged, and its verdict is do not serve"
    if claims.decision == "inconclusive":
        return 3, "can't tell: these are the bytes that the gate judged, and its verdict is inconclusive"
    if match.blocked:
        return 1, f"no: for what is served the verdict is do not serve ({', '.join(match.blocked)})"
    if match.unknown:
        return 3, f"can't tell: {'; '.join(match.unknown)}"
    if (match.limits or claims.decision == "serve_with_limits") and not allow_limits:
        limits = "; ".join(match.limits) or "the statement names none"
        return (
            1,
            f"no: it may be served with limits only ({limits}), and limits weren't allowed (--allow-limits)",
        )
    within = f", within its limits ({'; '.join(match.limits)})" if match.limits else ""
    return 0, f"yes: these bytes are the ones that were gated, and may be served{within}"


def _read(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as f:
            raw = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise AttestationError(f"expected {what} at {path}, found none that can be read: {e.strerror}") from e
    if len(raw) > MAX_BYTES:
        raise AttestationError(f"{path}: expected at most {MAX_BYTES} bytes, found more")
    return raw
