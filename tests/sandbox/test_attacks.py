# ruff: noqa: PTH108, PTH115, PTH119, PTH207
"""The threat: a program that a model wrote reads the answers, writes to the host, outlives its run, takes more than its
share, or is graded as right without being right.

Every attack of tests/attacks runs on every backend. The state of the host is compared before and after. What a backend
is known not to contain would stand in KNOWN_GAPS with its reason; the list is part of the contract.
"""

from __future__ import annotations

import glob
import os
import secrets
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sandbox.contract import Limits, Program, Sandbox, Status
from sandbox.function_mode import CallOutcome, run_function

CORPUS = Path(__file__).parents[1] / "attacks"
ATTACKS = tomllib.loads((CORPUS / "programs.toml").read_text())["attack"]
FORGERIES = tomllib.loads((CORPUS / "forgeries.toml").read_text())["forgery"]
SUFFIX = {"python": "py", "lua": "lua", "javascript": "js"}
LIMITS = Limits(
    wall_s=30,
    cpu_s=0.8,
    memory_bytes=192 << 20,
    processes=32,
    file_bytes=8 << 20,
    tmp_bytes=32 << 20,
    output_bytes=1 << 18,
)
SLOW = Limits(wall_s=1, cpu_s=0.5)
CALLS = [((2, 3), 5), ((-7, 4), -3), ((10**20, 1), 10**20 + 1)]
KNOWN_GAPS: dict[tuple[str, str], str] = {}


def _needs(entry: dict[str, str]) -> list[pytest.MarkDecorator]:
    return {
        "lua": [pytest.mark.system("lua")],
        "javascript": [pytest.mark.system("node")],
    }.get(entry.get("language", "python"), [])


def _parameters(corpus: list[dict[str, str]]) -> list[object]:
    return [pytest.param(entry, id=entry["name"], marks=_needs(entry)) for entry in corpus]


def _ours(mark: str) -> dict[str, object]:
    """What of the host a program could have changed: its own processes, this process's mounts and children, control
    groups and directories of ours, planted files.
    """
    processes = []
    for directory in glob.glob("/proc/[0-9]*"):
        try:
            if (
                mark.encode() in Path(directory, "cmdline").read_bytes()
                and directory != f"/proc/{os.getpid()}"
            ):
                processes.append(directory)
        except OSError:
            continue
    return {
        "processes": processes,
        "children": _children(),
        "mounts": [
            line for line in Path("/proc/self/mounts").read_text().splitlines() if not _of_another(line)
        ],
        "cgroups": sorted(glob.glob(f"/sys/fs/cgroup/**/mtp-gate-{os.getpid()}-*", recursive=True))
        + sorted(glob.glob(f"/sys/fs/cgroup/**/mtp-gate-test-{os.getpid()}/*/", recursive=True)),
        "directories": sorted(
            glob.glob(f"/tmp/mtp-gate-code-{os.getpid()}-*") + glob.glob(f"/run/mtp-gate-{os.getpid()}-*")
        ),
        "planted": [
            path
            for path in glob.glob("/tmp/*") + glob.glob("/dev/shm/*")
            if os.path.basename(path) in ("planted", "sitecustomize.py", "conftest.py", "big")
        ],
        "pidfds": sum("pidfd" in _link(fd) for fd in glob.glob("/proc/self/fd/*")),
    }


def _children() -> list[str]:
    """Of this process, without what the tests' own daemon leaves to it."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in pids if "containerd" not in Path(f"/proc/{pid}/comm").read_text()]


def _of_another(mount: str) -> bool:
    """True for what a Docker daemon that isn't ours mounts meanwhile."""
    ours = os.environ.get("GATE_TEST_DAEMON", "none")
    return ("overlay" in mount or "docker" in mount) and ours not in mount


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("answers") / "answers.json"
    path.write_text("expected answers")
    for part in (path, *path.parents):
        if part.stat().st_uid == os.geteuid():
            part.chmod(part.stat().st_mode | 0o055)
    os.environ["GATE_CANARY"] = "GATE_CANARY"
    yield path
    del os.environ["GATE_CANARY"]


@pytest.fixture(scope="module")
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("attack", _parameters(ATTACKS))
def test_attack_is_contained(sandbox: Sandbox, attack: dict[str, str], answers: Path, listener: int) -> None:
    mark = secrets.token_hex(16)
    entry = "main." + SUFFIX[attack.get("language", "python")]
    program = Program(
        files={entry: attack["source"].encode()},
        entry=entry,
        language=attack.get("language", "python"),
        argv=(str(listener), str(answers), mark),
    )
    before = _ours(mark)
    # one that is to be stopped by the clock is stopped soon; any other has time, however busy the machine is
    wall_s = 1.5 if "timeout" in attack["ends"] else LIMITS.wall_s
    outcome = sandbox.run(program, msgspec.structs.replace(LIMITS, wall_s=wall_s))
    after = _ours(mark)
    assert outcome.status in attack["ends"], outcome
    assert b"ESCAPED" not in outcome.stdout + outcome.stderr, (outcome.stdout + outcome.stderr).decode()
    assert b"Traceback" not in outcome.stderr, outcome.stderr.decode()
    assert len(outcome.stdout) + len(outcome.stderr) <= LIMITS.output_bytes
    assert after == before
    assert answers.read_text() == "expected answers"


@pytest.mark.parametrize("forgery", _parameters(FORGERIES))
def test_forgery_is_no_pass(sandbox: Sandbox, forgery: dict[str, str]) -> None:
    mark = secrets.token_hex(16)
    before = _ours(mark)
    limits = SLOW if forgery.get("slow") else Limits(wall_s=30, cpu_s=2)
    results = run_function(
        sandbox,
        forgery["source"].encode(),
        "add",
        [arguments for arguments, _ in CALLS],
        limits,
        forgery.get("language", "python"),
        max_restarts=1,
    )
    after = _ours(mark)
    assert len(results) == len(CALLS)
    for result, (_, expected) in zip(results, CALLS, strict=True):
        passed = result.outcome is CallOutcome.RETURNED and result.value == expected
        assert not passed
        assert result.outcome is not CallOutcome.INFRA
    assert after == before


def test_the_corpus_can_escape(listener: int, answers: Path) -> None:
    """Without a sandbox the same programs do get through, so that silence means containment."""
    import subprocess
    import sys

    escaping = {"read the host's files", "network", "read the answers through symlinks"}
    for attack in ATTACKS:
        if attack["name"] in escaping:
            command = [sys.executable, "-c", attack["source"], str(listener), str(answers), "mark"]
            done = subprocess.run(command, capture_output=True, timeout=20)
            assert b"ESCAPED" in done.stdout, attack["name"]
    for link in glob.glob("/tmp/link[0-9]*"):
        os.unlink(link)


@pytest.mark.parametrize("language", ["python", pytest.param("lua", marks=pytest.mark.system("lua"))])
def test_honest_program_passes_the_forgery_calls(sandbox: Sandbox, language: str) -> None:
    source = {"python": b"def add(a, b): return a + b", "lua": b"function add(a, b) return a + b end"}[
        language
    ]
    calls = CALLS if language == "python" else CALLS[:2]
    results = run_function(sandbox, source, "add", [arguments for arguments, _ in calls], Limits(), language)
    assert [result.value for result in results] == [expected for _, expected in calls]


def test_every_known_gap_is_of_the_corpus() -> None:
    names = {entry["name"] for entry in ATTACKS + FORGERIES}
    assert {name for _, name in KNOWN_GAPS} <= names


def test_statuses_of_the_corpus_exist() -> None:
    assert {status for attack in ATTACKS for status in attack["ends"]} <= {
        status.value for status in Status
    } - {"infra"}
