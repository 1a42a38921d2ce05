"""Which gated arm is the one that a deploy will serve, and where the two differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from evals.types import Arm
from gate.claims import Claims, Test
from gate.served import Served
from tasks.depth import base_and_depth


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One comparison: what the statement (or the deploy's demand) expects, and what was found."""

    what: str
    expected: str
    found: str
    ok: bool

    @classmethod
    def equal(cls, what: str, *, expected: str, found: str | None) -> Check:
        return cls(
            what=what, expected=expected, found="none" if found is None else found, ok=expected == found
        )

    def __str__(self) -> str:
        return f"{self.what}: expected {_short(self.expected)}, found {_short(self.found)}"


class Match(msgspec.Struct, frozen=True):
    """The gated arms that what is served may be, the settings compared, and what the verdict says of these arms.

    limits: up to where it holds. blocked: tests that must not be served. unknown: why nothing can be said.
    notes: what was not compared, and limits that were not checked.
    """

    arms: tuple[Arm, ...]
    checks: tuple[Check, ...]
    limits: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


COMPARED = ("k", "device", "engine", "method", "head")


def match_served(claims: Claims, heads: frozenset[str], served: Served | None) -> Match:
    """Find the arms with one of these heads (or with none) that agree with what is served.

    Where none agrees in all, the checks are those of the arm that differs least.
    """
    served = served or Served()
    arms = [a for a in claims.servable if a.head_digest is None or a.head_digest in heads]
    if not arms:
        return Match((), (), unknown=("no arm of the run has this head",))
    arms = [a for a in arms if a.concurrency == served.concurrency] or arms
    compared = {arm.name: _compare(arm, claims.in_force, served) for arm in arms}
    agreeing = [a for a in arms if all(c.ok for c in compared[a.name])]
    if not agreeing:
        nearest = min(arms, key=lambda a: sum(not c.ok for c in compared[a.name]))
        return Match((), compared[nearest.name])
    names = {a.name for a in agreeing}
    tests = [t for t in claims.tests if t.arm in names and t.requirement != "advisory"]
    tested = {t.arm for t in tests}
    limits, over, unchecked = _limits(tests, served)
    unknown = [f"nothing was decided for {name}" for name in sorted(names - tested)]
    unknown += [f"{t.name} is inconclusive" for t in tests if t.decision == "inconclusive"]
    unknown += _unmeasured(tests, agreeing, served, claims.tests)
    return Match(
        arms=tuple(agreeing),
        checks=(*compared[agreeing[0].name], *over),
        limits=limits,
        blocked=tuple(t.name for t in tests if t.decision == "do_not_serve"),
        unknown=tuple(unknown),
        notes=(*_not_compared(agreeing, claims.in_force, served), *unchecked),
    )


def _compare(arm: Arm, in_force: dict[str, str], served: Served) -> tuple[Check, ...]:
    pairs = [(name, getattr(arm, name), getattr(served, name)) for name in COMPARED]
    for mapping, wanted in (
        (in_force | arm.properties, served.openvino_properties()),
        (arm.scheduler, served.scheduler),
        (arm.versions, served.versions),
    ):
        pairs += [(key, mapping.get(key, "not set"), value) for key, value in sorted(wanted.items())]
    return tuple(
        Check(what=name, expected=str(gated), found=str(used), ok=type(gated) is type(used) and gated == used)
        for name, gated, used in pairs
        if used is not None
    )


def _not_compared(arms: list[Arm], in_force: dict[str, str], served: Served) -> Iterable[str]:
    """What the arms fix and the deploy didn't say."""
    properties, left = served.openvino_properties(), []
    for arm in arms:
        fixed: dict[str, Any] = {
            name: getattr(arm, name) for name in COMPARED if getattr(served, name) is None
        }
        if arm.concurrency > 1 and served.concurrency is None:
            fixed["concurrency"] = arm.concurrency
        fixed |= {k: v for k, v in (in_force | arm.properties).items() if k not in properties}
        fixed |= {k: v for k, v in arm.scheduler.items() if k not in served.scheduler}
        fixed |= {k: v for k, v in arm.versions.items() if k not in served.versions}
        said = ", ".join(f"{k} = {v}" for k, v in fixed.items() if v is not None)
        if said:
            left.append(f"not compared, and the verdict holds for these only ({arm.name}): {said}")
    return left


def _limits(tests: list[Test], served: Served) -> tuple[tuple[str, ...], list[Check], list[str]]:
    """The limits in words; checks of those that what is served says something of; notes on the rest."""
    values = {
        "depth": served.depth,
        "concurrency": served.concurrency,
        "k": served.k,
        "kv_cache_precision": served.openvino_properties().get("KV_CACHE_PRECISION"),
    }
    words, checks, notes = [], [], []
    for test in tests:
        for name, limit in test.limits.items():
            words.append(f"{test.name}: {name} {limit}")
            value = values.get(name)
            if value is None:
                notes.append(f"limit not checked, keep to it: {test.name}: {name} {limit}")
            elif isinstance(limit, (int, float)) and isinstance(value, int):
                checks.append(
                    Check(
                        what=f"{name} of {test.name}",
                        expected=f"at most {limit}",
                        found=str(value),
                        ok=value <= limit,
                    )
                )
            else:
                checks.append(Check.equal(f"{name} of {test.name}", expected=str(limit), found=str(value)))
        if test.decision == "serve_with_limits" and not test.limits:
            words.append(f"{test.name}: limits that the statement doesn't name")
    return tuple(words), checks, notes


def _unmeasured(tests: list[Test], arms: list[Arm], served: Served, every: Iterable[Test]) -> list[str]:
    """A depth or a concurrency that is asked about, and that no limit, no task at a depth and no arm speaks of."""
    held = {f"{base} {t.arm}" for t in every for base in [_held_at(t, served.depth)] if base is not None}
    asked = {
        "depth": None if tests and all(t.name in held for t in tests) else served.depth,
        "concurrency": None if {a.concurrency for a in arms} == {served.concurrency} else served.concurrency,
    }
    return [
        f"the statement says nothing of {name} {value}"
        for name, value in asked.items()
        if value is not None and not any(name in t.limits for t in tests)
    ]


def _held_at(test: Test, depth: int | None) -> str | None:
    """The task of which this test is the same at that depth or a deeper one, where it may be served."""
    base, found = base_and_depth(test.task)
    good = test.decision in ("serve", "serve_with_limits")
    return base if good and depth is not None and found is not None and found >= depth else None


def _short(text: str) -> str:
    """A digest cut to 12 digits, as it is shown elsewhere."""
    words = text.split(" ")
    return " ".join(w[:12] + "…" if len(w) == 64 and w.isalnum() else w for w in words)
