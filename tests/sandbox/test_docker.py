"""The threat: a flag of the hardened container that is dropped without a word, a daemon that is down taken for failing
programs, and what a container leaves behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.choose import choose
from sandbox.contract import Limits, Program, SandboxUnavailable, Status

pytestmark = pytest.mark.system("docker")
LIMITS = Limits(
    memory_bytes=128 << 20, processes=20, file_bytes=3 << 20, tmp_bytes=5 << 20, open_files=33, cores=0.5
)
SLEEPER = Program(files={"main.py": b"import time\nprint(1, flush=True)\ntime.sleep(100)"}, entry="main.py")


@pytest.fixture(scope="module")
def docker_sandbox(docker_host: str) -> Iterator[Any]:
    from sandbox.docker_backend import DockerSandbox

    made = DockerSandbox(docker_host)
    yield made
    made.close()


@pytest.fixture(scope="module")
def inspected(docker_sandbox: Any) -> dict[str, Any]:
    """What the daemon itself says of a running container."""
    with docker_sandbox.open(SLEEPER, LIMITS) as session:
        session.receive()
        return docker_sandbox._client.api.inspect_container(session._id)  # type: ignore[no-any-return]


def test_every_flag_is_in_force(inspected: dict[str, Any]) -> None:
    host, config = inspected["HostConfig"], inspected["Config"]
    assert host["NetworkMode"] == "none"
    assert config["NetworkDisabled"] is True
    assert host["ReadonlyRootfs"] is True
    assert host["Privileged"] is False
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert config["User"] == "65534:65534"
    assert host["PidsLimit"] == 21
    assert host["Memory"] == host["MemorySwap"] == 128 << 20
    assert host["NanoCpus"] == 500_000_000
    assert host["IpcMode"] == "none"
    assert host["Init"] is True
    assert host["PidMode"] == host["UTSMode"] == ""
    assert not host["Devices"] and not host["Binds"] and not host["VolumesFrom"]
    assert host["LogConfig"]["Type"] == "none"
    assert {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in host["Ulimits"]} == {
        "nofile": (33, 33),
        "fsize": (3 << 20, 3 << 20),
        "core": (0, 0),
    }
    assert {"/sys", "/dev/mqueue", "/proc/kcore", "/proc/keys"} <= set(host["MaskedPaths"])


def test_the_scratch_space_is_bounded_and_the_code_read_only(inspected: dict[str, Any]) -> None:
    tmpfs = inspected["HostConfig"]["Tmpfs"]
    assert set(tmpfs) == {"/tmp", "/dev/shm"}
    assert {"nosuid", "nodev", "noexec", f"size={5 << 20}", "nr_inodes=4096"} <= set(tmpfs["/tmp"].split(","))
    (mount,) = inspected["Mounts"]
    assert (mount["Destination"], mount["RW"], mount["Type"]) == ("/code", False, "bind")


def test_the_seccomp_profile_is_ours(inspected: dict[str, Any]) -> None:
    (option,) = [option for option in inspected["HostConfig"]["SecurityOpt"] if option.startswith("seccomp=")]
    profile = json.loads(option.removeprefix("seccomp="))
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert not {"ptrace", "io_uring_setup", "unshare"} & {
        name for rule in profile["syscalls"] for name in rule["names"]
    }


def test_the_environment_of_the_daemon_is_not_passed_on(inspected: dict[str, Any]) -> None:
    names = {line.split("=")[0] for line in inspected["Config"]["Env"]}
    assert names == {"PATH", "LANG", "HOME", "TMPDIR", "TZ"}


def test_nothing_is_left_after_any_end(docker_sandbox: Any) -> None:
    api = docker_sandbox._client.api
    for source in ("print(1)", "while True: pass", "import os\nwhile True: os.write(1, b'x' * 65536)", "1/0"):
        docker_sandbox.run(
            Program(files={"m.py": source.encode()}, entry="m.py"), Limits(wall_s=5, cpu_s=0.5)
        )
    assert api.containers(all=True) == []
    assert api.volumes()["Volumes"] in (None, [])


def test_a_container_left_by_a_killed_process_is_swept(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sandbox.docker_backend as backend

    made = backend.DockerSandbox(docker_host)
    session = made.open(SLEEPER, Limits(wall_s=200))
    backend.DockerSandbox(docker_host).close()
    assert len(made._client.api.containers(all=True)) == 1  # too young
    monkeypatch.setattr(backend, "STALE_S", -1)
    backend.DockerSandbox(docker_host).close()
    assert made._client.api.containers(all=True) == []
    session.close()
    made.close()


def test_a_limit_that_is_only_warned_of_is_refused(
    docker_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = docker_sandbox._client.api
    create = api.create_container

    def warning(*args: Any, **kwargs: Any) -> Any:
        return {
            **create(*args, **kwargs),
            "Warnings": ["Your kernel does not support swap limit capabilities."],
        }

    monkeypatch.setattr(api, "create_container", warning)
    outcome = docker_sandbox.run(SLEEPER, Limits())
    assert outcome.status is Status.INFRA
    assert (
        "expected every limit to be enforced, found Your kernel does not support swap limit" in outcome.detail
    )
    assert api.containers(all=True) == []


def test_a_runtime_that_is_not_there_is_infra(docker_host: str) -> None:
    from sandbox.docker_backend import DockerSandbox

    made = DockerSandbox(docker_host, runtime="runsc-not-there")
    outcome = made.run(SLEEPER, Limits())
    made.close()
    assert outcome.status is Status.INFRA
    assert "runsc-not-there" in outcome.detail


def test_a_missing_image_says_how_to_make_it(docker_host: str) -> None:
    from sandbox.docker_backend import DockerSandbox

    with pytest.raises(SandboxUnavailable, match="gate sandbox build"):
        DockerSandbox(docker_host, image="not-there:1")


def test_a_daemon_that_is_down_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    with pytest.raises(SandboxUnavailable, match="systemctl start docker"):
        choose("docker")


def test_a_daemon_that_goes_away_is_no_fail_of_the_program(
    docker_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import requests

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise requests.exceptions.ConnectionError("gone")

    monkeypatch.setattr(docker_sandbox._client.api, "create_container", gone)
    outcome = docker_sandbox.run(SLEEPER, Limits())
    assert (outcome.status, outcome.stdout) == (Status.INFRA, b"")


def test_choose_docker_by_name(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    sandbox = choose("docker")
    assert sandbox.describe()["image"].startswith("sha256:")
    sandbox.close()


def test_the_dockerfile_pins_its_base_and_a_failed_build_says_why(docker_host: str) -> None:
    import sandbox.docker_backend as backend

    lines = (backend._context() / "Dockerfile").read_text().splitlines()
    first = next(line for line in lines if line.startswith(("ARG ", "FROM ")))
    assert re.fullmatch(r"ARG BASE=debian:\S+@sha256:[0-9a-f]{64}", first)
    with pytest.raises(SandboxUnavailable, match="docker"):
        backend.build_image(
            docker_host, tag="mtp-gate-test:1"
        )  # no registry is reached from the tests' daemon


@pytest.mark.parametrize(
    "base", ["debian:12", "debian@sha256:abc", "sha256:" + "g" * 64, "-x@sha256:" + "0" * 64]
)
def test_a_base_that_is_not_pinned_is_refused(base: str, docker_host: str) -> None:
    import sandbox.docker_backend as backend

    with pytest.raises(SandboxUnavailable, match="pinned by its digest"):
        backend.build_image(docker_host, tag="mtp-gate-test:1", base=base)


def test_the_image_that_users_build_is_trusted(docker_host: str) -> None:
    """The Dockerfile itself, from a base that the daemon has: its interpreters are installed, its self-test holds."""
    import sandbox.docker_backend as backend

    base = backend.connect(docker_host).images.get(backend.IMAGE).id
    built = backend.build_image(docker_host, tag="mtp-gate-test:2", base=base, network="host")
    made = backend.DockerSandbox(docker_host, image="mtp-gate-test:2")
    assert made.describe()["image"] == built != base
    assert [probe.name for probe in made.self_test() if not probe.passed] == []
    setuid = (
        b"import os, stat\nprint([os.path.join(d, f) for d, _, fs in os.walk('/usr') for f in fs "
        b"if os.lstat(os.path.join(d, f)).st_mode & 0o6000])"
    )
    found = made.run(Program(files={"main.py": setuid}, entry="main.py"), LIMITS)
    assert found.stdout.strip() == b"[]"
    made.close()
