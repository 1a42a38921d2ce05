"""The policy: what each task requires and every number that decides, read from TOML.

The numbers live in `policy_default.toml`, where a reviewer reads them; this file only gives their types and bounds.
A user's file is laid over the default key by key, so it need only hold what differs.
"""

from __future__ import annotations

import datetime as dt
import difflib
import hashlib
import re
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from evals.remedies import RemedyError, parse_remedy
from tasks.depth import base_and_depth

Requirement = Literal["identical", "no_worse", "non_inferior", "advisory"]
Quantile = Literal["p50", "p90", "p99", "max"]
MAX_BYTES = 256 * 1024
"""A policy larger than this is not a policy."""

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
OpenShare = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Factor = Annotated[float, msgspec.Meta(ge=1, le=100)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class PolicyError(ValueError):
    """A policy that can't be used; the message says what was expected, what was found, where, and what to do."""


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every number that decides. What each means stands beside it in `policy_default.toml`."""

    min_drafts: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    dead_acceptance: Share
    collapse_window_drafts: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)]
    collapse_share: Share
    too_good_acceptance: Share
    too_good_repeated_share: Share
    degenerate_repeated_share: OpenShare
    degenerate_min_tokens: Annotated[int, msgspec.Meta(ge=8, le=1_000_000)]
    max_degenerate_plain_share: Share
    min_plain_score: Share
    near_tie_quantile: Quantile
    near_tie_factor: Annotated[float, msgspec.Meta(gt=0, le=100)]
    unreproduced_gap_factor: Factor
    max_width_noise: Annotated[float, msgspec.Meta(gt=0, le=100)]
    min_unmeasured_spans: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    control_max_acceptance: Share
    min_speed_ratio: Annotated[float, msgspec.Meta(gt=0, le=100)]
    delay_factor: Factor
    delay_s: Annotated[float, msgspec.Meta(ge=0, le=3600)]
    depth_spread: Factor
    non_inferiority_margin: OpenShare
    confidence: Annotated[float, msgspec.Meta(ge=0.5, lt=1)]
    worse_confidence: Annotated[float, msgspec.Meta(ge=0.5, lt=1)]


class Requirements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is required of a task: by name, else the default."""

    default: Requirement
    tasks: dict[Name, Requirement]


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blocking finding that shall not block: by code and task (and arm), for a reason, until a day (inclusive)."""

    code: Name
    task: Name
    reason: Annotated[str, msgspec.Meta(min_length=3, max_length=1000)]
    expires: dt.date
    arm: Name | None = None


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy, whole and checked. `digest` goes into every verdict."""

    schema: Literal[1]
    requirements: Requirements
    thresholds: Thresholds
    severities: dict[Name, Literal["note", "block"]]
    remedies: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=500)], ...], msgspec.Meta(max_length=50)]
    waivers: Annotated[tuple[Waiver, ...], msgspec.Meta(max_length=1000)] = ()

    def requirement(self, task: str) -> Requirement:
        """What is required of `task`, at whichever depth it is asked."""
        return self.requirements.tasks.get(base_and_depth(task)[0], self.requirements.default)

    def digest(self) -> str:
        """SHA-256 of what the policy means: comments, order of keys and the way numbers are written don't count."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


def default_policy_text() -> str:
    """The default policy file, comments included."""
    return resources.files("gate").joinpath("policy_default.toml").read_text("utf-8")


def load_policy(path: Path | None, tasks: Collection[str] | None = None) -> Policy:
    """The policy in `path` laid over the default, or the default alone.

    tasks: names of the tasks that exist; where given, a requirement or waiver for any other is an error.
    Raises PolicyError for a file that can't be read, isn't TOML, or holds an unknown key, a wrong type, a value out of
    range, an unknown task or reason code, or a severity that would turn missing evidence into a pass.
    """
    merged: dict[str, Any] = msgspec.toml.decode(default_policy_text())
    where = "the default policy"
    if path is not None:
        where = str(path)
        _overlay(merged, _read(path))
    try:
        policy = msgspec.convert(merged, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(_explain(str(error), where)) from None
    _check_codes(policy, where)
    _check_remedies(policy, where)
    if tasks is not None:
        _check_tasks(policy, tasks, where)
    return policy


def _check_remedies(policy: Policy, where: str) -> None:
    for text in policy.remedies:
        try:
            parse_remedy(text)
        except RemedyError as error:
            raise PolicyError(f"{where}: remedies: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise PolicyError(
                f"expected a policy file (TOML) at {path}, found something that is no regular file. "
                "Write the policy to a file and give its path."
            )
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PolicyError(
            f"expected a policy file (TOML) at {path}, but it can't be read: {error.strerror}. "
            "Give --policy the path of a readable file, or leave it out for the default."
        ) from None
    if len(raw) > MAX_BYTES:
        raise PolicyError(
            f"expected a policy file of at most {MAX_BYTES // 1024} KB at {path}, found a larger one. "
            "Check that --policy names the policy and not a model or a record."
        )
    try:
        decoded = msgspec.toml.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyError(
            f"expected TOML in {path}, found something else: {error}. Start from what `gate policy` prints."
        ) from None
    assert isinstance(decoded, dict)
    return decoded


def _overlay(base: dict[str, Any], over: dict[str, Any]) -> None:
    """Lay `over` on `base`, table by table; anything but a table replaces what was there."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _overlay(base[key], value)
        else:
            base[key] = value


def _explain(message: str, where: str) -> str:
    """msgspec's message, with the place in the field's own words and what to do."""
    match = re.match(r"Object contains unknown field `(?P<key>.*?)`(?: - at `\$?\.?(?P<at>.*)`)?$", message)
    if match:
        table = match["at"] or ""
        known = _fields_of(table)
        near = difflib.get_close_matches(match["key"], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}."
        place = f"[{table}]" if table else "the top level"
        return f"{where}: expected a known key in {place}, found {match['key']!r}; {hint}"
    what, _, at = message.partition(" - at ")
    place = at.strip("`").removeprefix("$.") or "the top level"
    return f"{where}: {place}: {what}. `gate policy` prints the default with every key explained."


def _fields_of(table: str) -> list[str]:
    owner: type[msgspec.Struct]
    if table == "requirements":
        owner = Requirements
    elif table == "thresholds":
        owner = Thresholds
    elif table.startswith("waivers"):
        owner = Waiver
    else:
        owner = Policy
    return [field.name for field in msgspec.structs.fields(owner)]


def _check_codes(policy: Policy, where: str) -> None:
    from gate.rules.registry import POLICY_CODES, SEVERITY_OF  # the rules need Policy's type

    for code in policy.severities:
        _known(code, SEVERITY_OF, f"{where}: severities", "reason code")
        if code in POLICY_CODES:
            raise PolicyError(
                f"{where}: severities: expected the code of what was seen in the arms, found {code!r}, which says that "
                "the policy itself isn't kept. Remove it from [severities]."
            )
        if SEVERITY_OF[code] == "unreadable":
            raise PolicyError(
                f"{where}: severities: expected a code that blocks or notes, found {code!r}, which says that the "
                "evidence doesn't suffice: that can't be turned into a pass. Remove it from [severities]."
            )
    for index, waiver in enumerate(policy.waivers):
        _known(waiver.code, SEVERITY_OF, f"{where}: waivers[{index}]", "reason code")
        severity = policy.severities.get(waiver.code, SEVERITY_OF[waiver.code])
        if severity != "block" or waiver.code in POLICY_CODES:
            is_one = "the policy's own" if waiver.code in POLICY_CODES else repr(severity)
            raise PolicyError(
                f"{where}: waivers[{index}]: expected the code of a finding that blocks, found {waiver.code!r}, "
                f"which is {is_one} and can't be waived. Remove the waiver."
            )


def _check_tasks(policy: Policy, tasks: Collection[str], where: str) -> None:
    for task in policy.requirements.tasks:
        _known(task, tasks, f"{where}: requirements.tasks", "task")
    for index, waiver in enumerate(policy.waivers):
        _known(base_and_depth(waiver.task)[0], tasks, f"{where}: waivers[{index}]", "task")


def _known(name: str, known: Collection[str], where: str, what: str) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}."
    raise PolicyError(f"{where}: expected the name of a {what}, found {name[:80]!r}; {hint}")
