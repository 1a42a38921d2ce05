"""What a user needs to know of the sandboxes of this machine: which would be used, what every probe found, which
languages can be run, and what to install or enable. `gate doctor` prints it.
"""

import grp
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sandbox import cgroups, interpreters
from sandbox.choose import BACKENDS, failures
from sandbox.contract import LANGUAGES, Probe, SandboxUnavailable

SYSCTLS = (
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
    "user/max_user_namespaces",
)

UNTESTED = ": untested by the authors on a real machine, and its probes did not pass here"


class BackendReport(msgspec.Struct, frozen=True):
    """One backend. unavailable: why it can't be made, or "". facts: `Sandbox.describe`. probes: of its self-test."""

    name: str
    unavailable: str
    facts: dict[str, str]
    probes: tuple[Probe, ...]

    @property
    def trusted(self) -> bool:
        """True if it can be made and withstood every attack."""
        return not self.unavailable and not failures(self.probes)


class LanguageReport(msgspec.Struct, frozen=True):
    """One language of the bubblewrap backend. path, version: "" where `missing` says what to install."""

    name: str
    path: str
    version: str
    missing: str


class Report(msgspec.Struct, frozen=True):
    """chosen: the backend that a run would use, or "". system: facts of the machine. advice: what to do, a sentence
    each; empty when there is nothing to do.
    """

    chosen: str
    backends: tuple[BackendReport, ...]
    languages: tuple[LanguageReport, ...]
    system: dict[str, str]
    advice: tuple[str, ...]

    @property
    def trusted(self) -> bool:
        """True if a run could be trusted: some backend withstood every attack."""
        return bool(self.chosen)


def examine(names: tuple[str, ...] = tuple(BACKENDS)) -> Report:
    """Look at every backend named, attack it, and say what was found. Never raises for what it finds."""
    backends = tuple(map(_backend, names))
    chosen = next((backend.name for backend in backends if backend.trusted), "")
    languages = tuple(map(_language, LANGUAGES))
    system = _system()
    if system["cgroup"] == "v2":
        held = any(
            b.trusted and (b.name, b.facts.get("control")) == ("bubblewrap", "cgroup v2") for b in backends
        )
        system["cgroup"] += ", and its probes passed here" if held else UNTESTED
    return Report(chosen, backends, languages, system, _advice(chosen, backends, languages, system))


def _backend(name: str) -> BackendReport:
    try:
        sandbox = BACKENDS[name]()
    except SandboxUnavailable as error:
        return BackendReport(name, str(error), {}, ())
    try:
        return BackendReport(name, "", dict(sandbox.describe()), sandbox.self_test())
    finally:
        sandbox.close()


def _language(name: str) -> LanguageReport:
    try:
        path = interpreters.find(name).path
    except SandboxUnavailable as error:
        return LanguageReport(name, "", "", str(error))
    done = subprocess.run(
        [path, "-v" if name == "lua" else "--version"], capture_output=True, text=True, check=False
    )
    return LanguageReport(name, path, (done.stdout or done.stderr).split("\n")[0].strip(), "")


def _system() -> dict[str, str]:
    facts = {"uid": str(os.geteuid()), "kernel": os.uname().release, "machine": os.uname().machine}
    for name in SYSCTLS:
        path = Path("/proc/sys", name)
        if path.exists():
            facts[name.replace("/", ".")] = path.read_text().strip()
    groups = cgroups.find()
    facts["cgroup"] = groups.version if groups else "none that can be made; a watchdog stands in"
    try:
        members = grp.getgrnam("docker")
        facts["docker group"] = (
            "member" if members.gr_gid in os.getgroups() or os.geteuid() == 0 else "not a member"
        )
    except KeyError:
        facts["docker group"] = "none"
    return facts


def _advice(
    chosen: str,
    backends: tuple[BackendReport, ...],
    languages: tuple[LanguageReport, ...],
    system: Mapping[str, str],
) -> tuple[str, ...]:
    advice = [language.missing for language in languages if language.missing]
    if not chosen:
        for backend in backends:
            advice += [f"{backend.name}: {backend.unavailable}"] if backend.unavailable else []
            advice += list(
                dict.fromkeys(f"{backend.name}: {probe.remedy}" for probe in backend.probes if probe.remedy)
            )
        if system.get("kernel.apparmor_restrict_unprivileged_userns") == "1" and system["uid"] != "0":
            advice.append(
                "AppArmor restricts user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
            )
        if system.get("user.max_user_namespaces") == "0":
            advice.append("user namespaces are switched off: sysctl user.max_user_namespaces=10000")
    if cgroups.delegated(["gate"]):
        advice.append(
            "your systemd manager gave no scope with control groups (systemd-run --user --scope "
            "--property=Delegate=yes true): the watchdog stands in for them"
        )
    return tuple(advice)
