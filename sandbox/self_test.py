"""The attacks that a sandbox has to withstand before anything it says is believed.

Run before every grading: a sandbox is trusted for what it did on this machine, now, not for what it is. One miss and
it isn't used. Each probe says what had to happen, what did, and what to do.
"""

import contextlib
import json
import secrets
import socket
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from sandbox.contract import Limits, Outcome, Probe, Program, Sandbox, Status

LIMITS = Limits(wall_s=5, cpu_s=3, processes=16, file_bytes=2 << 20, tmp_bytes=4 << 20, output_bytes=1 << 16)
LOOP = msgspec.structs.replace(LIMITS, cpu_s=0.15)
MEMORY = msgspec.structs.replace(LIMITS, memory_bytes=64 << 20)
USER_NAMESPACES = (
    "let users make user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces=10000; on "
    "Ubuntu 24.04 kernel.apparmor_restrict_unprivileged_userns=0), or use --sandbox docker; inside a container, allow "
    "user namespaces and /proc mounts (--security-opt seccomp=unconfined --security-opt systempaths=unconfined)"
)
CONTROL = "run where a control group can be made (root, or a systemd user session), or use --sandbox docker"
REPORT = "don't use this sandbox on this machine; use --sandbox docker, and report what was found"


def attack(sandbox: Sandbox) -> tuple[Probe, ...]:
    """Run all attacks against a backend. Never raises; an attack that couldn't be run is a failed probe."""
    try:
        return _attack(sandbox)
    except Exception as error:
        return (Probe("self-test", False, "the attacks run", f"{type(error).__name__}: {error}", REPORT),)


def _attack(sandbox: Sandbox) -> tuple[Probe, ...]:
    code = resources.files("sandbox.drivers").joinpath("probe.py").read_bytes()
    mark = "mark:" + secrets.token_hex(16)

    def program(*arguments: str) -> Program:
        return Program(files={"probe.py": code}, entry="probe.py", argv=(*arguments, mark))

    def run(limits: Limits, *arguments: str) -> Outcome:
        return sandbox.run(program(*arguments), limits)

    with contextlib.ExitStack() as stack:
        canary = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "answers.json"
        canary.write_text("expected")
        canary.chmod(0o644)
        canary.parent.chmod(0o755)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        first = run(LIMITS, "facts", str(port), str(canary))
        probes = _facts(first, port)
        if not probes[0].passed:
            return probes
        pool = stack.enter_context(ThreadPoolExecutor(4))
        memory = pool.submit(run, MEMORY, "memory", "4", "24")
        loop = pool.submit(run, LOOP, "loop")
        flood = pool.submit(run, LIMITS, "flood")
        survive = pool.submit(run, LIMITS, "survive")
        ends = (
            _ends("memory of several processes", memory.result(), Status.KILLED, "memory_bytes", CONTROL),
            _ends("an endless loop", loop.result(), Status.TIMEOUT, "cpu_s", REPORT),
            _ends("endless output", flood.result(), Status.OUTPUT_LIMIT, "output_bytes", REPORT),
            _ends("a program that leaves a daemon behind", survive.result(), Status.EXITED, "", REPORT),
        )
        seen = pool.submit(_seen_from_outside, sandbox, program("wait"), mark).result()
        cut = len(flood.result().stdout)
    alive = _marked(mark)
    return (
        *probes,
        *ends,
        _probe("not the host's root, seen outside", 0 not in seen, "no process of uid 0", seen),
        _probe("output is cut", cut <= LIMITS.output_bytes, f"at most {LIMITS.output_bytes} bytes", cut),
        _probe("nothing survives", not alive, "no process of the attacks is left", alive),
    )


def _marked(mark: str) -> list[str]:
    """Process directories of this machine whose command line carries the mark."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (directory / "cmdline").read_bytes():
                found.append(str(directory))
    return found


def _seen_from_outside(sandbox: Sandbox, program: Program, mark: str) -> list[int]:
    """Real uids, as this machine sees them, of the processes of a running program (bwrap among them); none are
    seen where the backend runs on another machine.
    """
    with sandbox.open(program, LIMITS) as session:
        session.receive()
        lines = [
            line.split()[1]
            for directory in _marked(mark)
            for line in (Path(directory) / "status").read_text().splitlines()
            if line.startswith("Uid:")
        ]
    return [int(uid) for uid in lines]


def _probe(name: str, passed: bool, expected: str, found: object, remedy: str = REPORT) -> Probe:
    return Probe(name, passed, expected, str(found), "" if passed else remedy)


def _ends(name: str, outcome: Outcome, status: Status, limit: str, remedy: str) -> Probe:
    expected = f"{status} {limit}".rstrip()
    found = f"{outcome.status} {outcome.limit} {outcome.detail}".rstrip()
    return _probe(name, (outcome.status, outcome.limit) == (status, limit), expected, found, remedy)


def _facts(outcome: Outcome, port: int) -> tuple[Probe, ...]:
    """The probes that come from the program which ends by itself; the first says whether it ran."""
    found: Any = None
    with contextlib.suppress(ValueError):
        found = json.loads(outcome.stdout)
    words = outcome.detail or outcome.stderr.decode(errors="replace")[-300:].strip()
    if outcome.status is not Status.EXITED or not isinstance(found, dict):
        return (_probe("a program runs", False, "exited", f"{outcome.status}: {words}", USER_NAMESPACES),)
    status, refused = found["status"], found["refused"]
    outside = socket.socket()
    with outside:
        outside.settimeout(2)
        reached = outside.connect_ex(("127.0.0.1", port)) == 0
    checks: list[tuple[str, Callable[[], bool], str, object]] = [
        ("a program runs", lambda: True, "exited", outcome.status),
        ("not the host's root", lambda: 0 not in found["uid"], "no uid 0 inside or outside", found["uid"]),
        ("no capabilities", lambda: int(status["CapEff"], 16) == 0, "CapEff 0", status["CapEff"]),
        ("no new privileges", lambda: status["NoNewPrivs"] == "1", "NoNewPrivs 1", status["NoNewPrivs"]),
        ("system calls are filtered", lambda: status["Seccomp"] == "2", "Seccomp 2", status["Seccomp"]),
        *(
            (f"{name} is refused", lambda name=name: refused[name], "refused", refused[name])
            for name in refused
        ),
        ("the host's loopback is reachable outside", lambda: reached, "a connection", reached),
        (
            "no network",
            lambda: not found["connects"],
            "no connection to the host's loopback",
            found["connects"],
        ),
        (
            "nothing outside /tmp can be written",
            lambda: not found["writable"],
            "no file written",
            found["writable"],
        ),
        ("the host's files can't be read", lambda: not found["readable"], "no byte read", found["readable"]),
        ("a file is bounded", lambda: found["one_file"] <= LIMITS.file_bytes, "2 MiB", found["one_file"]),
        (
            "all files are bounded",
            lambda: found["all_files"] <= LIMITS.tmp_bytes,
            "4 MiB",
            found["all_files"],
        ),
        ("processes are bounded", lambda: 1 <= found["forks"] <= LIMITS.processes, "1 to 16", found["forks"]),
        (
            "no process of the host is seen",
            lambda: found["processes_seen"] <= 4,
            "4 at most",
            found["processes_seen"],
        ),
    ]
    return tuple(_probe(name, bool(check()), expected, value) for name, check, expected, value in checks)
