"""The threat: a sandbox that isn't sound is used all the same, or an outage is taken for a result.

Each probe of the self-test is shown a sandbox that lacks what it looks for, and has to say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sandbox import bwrap_arguments as backend
from sandbox import choose as choosing
from sandbox import doctor, seccomp, self_test
from sandbox.bubblewrap import Bubblewrap
from sandbox.choose import choose, failures
from sandbox.contract import Limits, Outcome, Probe, Program, Sandbox, SandboxUnavailable, Status


def test_the_default_is_the_first_that_passes() -> None:
    sandbox = choose()
    assert sandbox.name == "bubblewrap"
    sandbox.close()


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of bubblewrap, docker, found 'chroot'"):
        choose("chroot")


def test_no_probes_are_no_pass() -> None:
    assert failures(()) != ""


def _unavailable() -> Sandbox:
    raise SandboxUnavailable("docker: no daemon answers; start it")


class Leaky(Bubblewrap):
    """A sandbox that can be made and does not hold."""

    def self_test(self) -> tuple[Probe, ...]:
        return (Probe("no network", False, "no connection", "True", "use another"),)


def test_one_that_fails_its_self_test_is_passed_over_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "BACKENDS", {"leaky": Leaky, "docker": _unavailable})
    with pytest.raises(SandboxUnavailable) as refused:
        choose()
    text = str(refused.value)
    assert "leaky isn't to be trusted here" in text
    assert "no network: expected no connection, found True; use another" in text
    assert "docker: no daemon answers; start it" in text
    monkeypatch.setattr(choosing, "BACKENDS", {"leaky": Leaky, "bubblewrap": Bubblewrap})
    assert not isinstance(choose(), Leaky)


def _without(*words: str) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        kept = list(backend.NAMESPACES)
        for word in words:
            kept.remove(word)
        monkeypatch.setattr(backend, "NAMESPACES", tuple(kept))

    return patch


def _no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_all = b"\x06\x00\x00\x00\x00\x00\xff\x7f"
    monkeypatch.setattr(seccomp, "program", lambda *a, **k: allow_all)


def _no_rlimits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "rlimits", lambda limits, session: [])


def _host_root_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    view = backend.host_view()
    monkeypatch.setattr(
        backend, "host_view", lambda: [*view, "--ro-bind", "/tmp", "/tmp", "--ro-bind", "/etc", "/etc"]
    )


def _writable_var(monkeypatch: pytest.MonkeyPatch) -> None:
    view = backend.host_view()
    monkeypatch.setattr(backend, "host_view", lambda: [*view, "--tmpfs", "/var/tmp"])


@pytest.mark.parametrize(
    ("weaken", "found"),
    [
        (_without("--unshare-net"), "no network"),
        (_no_filter, "io_uring_setup is refused"),
        (_no_rlimits, "expected"),  # files, or the memory of a fork bomb: whatever is noticed first
        (_writable_var, "nothing outside /tmp can be written"),
    ],
)
def test_a_weakened_sandbox_is_caught(
    monkeypatch: pytest.MonkeyPatch, weaken: Callable[[pytest.MonkeyPatch], None], found: str
) -> None:
    weaken(monkeypatch)
    made = Bubblewrap()
    try:
        assert found in failures(made.self_test())
    finally:
        made.close()


@pytest.mark.system("root")
def test_a_sandbox_that_does_not_drop_root_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bubblewrap()
    made._uid = None
    try:
        assert "not the host's root, seen outside" in failures(made.self_test())
    finally:
        made.close()


GOOD: dict[str, Any] = {
    "uid": [1000, 1000],
    "status": {"CapEff": "0", "CapBnd": "0", "NoNewPrivs": "1", "Seccomp": "2"},
    "refused": {"ptrace": True},
    "connects": False,
    "writable": [],
    "readable": [],
    "one_file": 1,
    "all_files": 1,
    "processes_seen": 2,
    "environment": [],
    "forks": 3,
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"uid": [0, 0]}, "not the host's root"),
        ({"uid": [1000, 0]}, "not the host's root"),
        ({"status": {**GOOD["status"], "CapEff": "00000000a80425fb"}}, "no capabilities"),
        ({"status": {**GOOD["status"], "NoNewPrivs": "0"}}, "no new privileges"),
        ({"status": {**GOOD["status"], "Seccomp": "0"}}, "system calls are filtered"),
        ({"refused": {"ptrace": False}}, "ptrace is refused"),
        ({"connects": True}, "no network"),
        ({"writable": ["/etc/x"]}, "nothing outside /tmp can be written"),
        ({"readable": ["/etc/shadow"]}, "the host's files can't be read"),
        ({"one_file": 1 << 30}, "a file is bounded"),
        ({"all_files": 1 << 30}, "all files are bounded"),
        ({"processes_seen": 99}, "no process of the host is seen"),
        ({"forks": 4096}, "processes are bounded"),
        ({"forks": 0}, "processes are bounded"),
    ],
)
def test_each_fact_that_is_wrong_fails_its_probe(change: dict[str, Any], found: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def probes(facts: dict[str, Any]) -> list[str]:
            outcome = Outcome(status=Status.EXITED, exit_code=0, stdout=json.dumps(facts).encode())
            return [probe.name for probe in self_test._facts(outcome, port) if not probe.passed]

        assert probes(GOOD) == []
        assert probes({**GOOD, **change}) == [found]


class Scripted:
    """Ends an attack the wrong way: the fault that has to be made."""

    name = "scripted"

    def __init__(self, real: Bubblewrap, attack: str, outcome: Outcome):
        self._real, self._attack, self._outcome = real, attack, outcome

    def run(self, program: Program, limits: Limits) -> Outcome:
        return self._outcome if self._attack in program.argv else self._real.run(program, limits)

    def open(self, program: Program, limits: Limits) -> object:
        return self._real.open(program, limits)


@pytest.mark.parametrize(
    ("attack", "outcome", "found"),
    [
        ("memory", Outcome(status=Status.EXITED, exit_code=0), "memory of several processes"),
        ("loop", Outcome(status=Status.TIMEOUT, limit="wall_s"), "an endless loop"),
        ("flood", Outcome(status=Status.EXITED, exit_code=0, stdout=b"x" * (1 << 20)), "output is cut"),
        ("survive", Outcome(status=Status.INFRA, detail="gone"), "a program that leaves a daemon behind"),
        ("facts", Outcome(status=Status.INFRA, detail="bwrap: no"), "a program runs"),
        ("facts", Outcome(status=Status.EXITED, exit_code=0, stdout=b"[]"), "a program runs"),
        ("facts", Outcome(status=Status.EXITED, exit_code=0, stdout=b"{}"), "the attacks run"),
    ],
)
def test_each_attack_that_ends_wrong_fails_its_probe(
    bubblewrap: Bubblewrap, attack: str, outcome: Outcome, found: str
) -> None:
    assert found in failures(self_test.attack(Scripted(bubblewrap, attack, outcome)))  # type: ignore[arg-type]


def test_the_doctor_says_what_would_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    report = doctor.examine(("bubblewrap",))
    assert (report.chosen, report.trusted) == ("bubblewrap", True)
    (found,) = report.backends
    assert found.trusted
    assert len(found.probes) > 20
    assert {language.name for language in report.languages} == {"python", "lua", "javascript"}
    assert msgspec.json.decode(msgspec.json.encode(report), type=doctor.Report) == report


def test_the_doctor_says_what_to_do_where_nothing_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "BACKENDS", {"leaky": Leaky, "docker": _unavailable})
    report = doctor.examine(("leaky", "docker"))
    assert (report.chosen, report.trusted) == ("", False)
    assert "leaky: use another" in report.advice
    assert "docker: docker: no daemon answers; start it" in report.advice


def test_the_doctor_names_the_package_of_a_missing_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.interpreters.CANDIDATES, "lua", ("/usr/bin/not-there",))
    report = doctor.examine(("bubblewrap",))
    assert any("install lua5.4" in line for line in report.advice)
    assert report.trusted


@pytest.mark.parametrize(
    ("holds", "said"), [(True, "its probes passed here"), (False, "untested by the authors")]
)
def test_version_2_groups_are_called_untested_until_their_probes_passed(
    holds: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfVersion2(Bubblewrap):
        def describe(self) -> dict[str, str]:
            return {**super().describe(), "control": "cgroup v2"}

        def self_test(self) -> tuple[Probe, ...]:
            return (Probe("memory of several processes", holds, "killed", "exited"),)

    monkeypatch.setattr(doctor, "BACKENDS", {"bubblewrap": OfVersion2})
    monkeypatch.setattr(doctor, "_system", lambda: {"uid": "1000", "cgroup": "v2"})
    assert said in doctor.examine(("bubblewrap",)).system["cgroup"]
