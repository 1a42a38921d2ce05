"""The sandboxes that tests run against: bubblewrap as this machine has it, bubblewrap with the watchdog in place of a
control group, and Docker through a daemon of the tests' own, which touches no firewall and is stopped by its pid.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Sandbox

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
GROUP_OF_DAEMON = f"mtp-gate-test-{os.getpid()}"
BACKENDS = [
    "bubblewrap",
    pytest.param("bubblewrap-watchdog", marks=pytest.mark.slow),
    pytest.param("docker", marks=pytest.mark.system("docker")),
]


def _codename() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return next(line.split("=")[1].strip('"') for line in lines if line.startswith("VERSION_CODENAME="))


def image_archive() -> Path:
    """A root file system with the three interpreters, made once by debootstrap where no registry is reachable."""
    archive = CACHE / f"sandbox-image-{_codename()}.tar"
    CACHE.mkdir(exist_ok=True)
    with filelock.FileLock(CACHE / "sandbox-image.lock"):
        if not archive.exists():
            folder = CACHE / "rootfs"
            shutil.rmtree(folder, ignore_errors=True)
            include = "--include=python3,lua5.4,nodejs"
            subprocess.run(
                ["debootstrap", "--variant=minbase", include, _codename(), str(folder)], check=True
            )
            partial = archive.with_suffix(".partial")
            exclude = ["--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./var/cache/apt/archives/*"]
            subprocess.run(["tar", "-C", str(folder), *exclude, "-cf", str(partial), "."], check=True)
            partial.rename(archive)
            shutil.rmtree(folder)
    return archive


@contextmanager
def own_daemon(folder: Path) -> Iterator[str]:
    """A dockerd that keeps everything in a folder and has the image; its address."""
    from sandbox.docker_backend import IMAGE

    archive = image_archive()
    address = f"unix://{folder}/docker.sock"
    command = [
        "setpriv",
        "--pdeathsig=TERM",
        "--",
        "dockerd",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--bridge=none",
    ]
    command += ["--storage-driver=overlay2", f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    command += [f"--pidfile={folder}/docker.pid", "-H", address, "--exec-opt", "native.cgroupdriver=cgroupfs"]
    command += [f"--cgroup-parent=/{GROUP_OF_DAEMON}"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        client = _wait_for(address, daemon, folder / "log")
        repository, tag = IMAGE.split(":")
        client.api.import_image_from_file(str(archive), repository=repository, tag=tag)
        yield address
        client.close()
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        for group in list(Path("/sys/fs/cgroup").rglob(GROUP_OF_DAEMON)):
            group.rmdir()


@pytest.fixture(scope="session")
def docker_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the tests' own daemon."""
    folder = tmp_path_factory.mktemp("dockerd")
    with own_daemon(folder) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATE_TEST_DAEMON", str(folder))
        yield address


def _wait_for(address: str, daemon: subprocess.Popen[bytes], log: Path):  # type: ignore[no-untyped-def]
    import docker

    end = time.monotonic() + 60
    while True:
        try:
            return docker.DockerClient(base_url=address, version="auto", timeout=120)
        except docker.errors.DockerException:
            if daemon.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"dockerd didn't start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.2)


def _make(name: str, request: pytest.FixtureRequest) -> Sandbox:
    if name == "docker":
        from sandbox.docker_backend import DockerSandbox

        return DockerSandbox(request.getfixturevalue("docker_host"))
    return Bubblewrap(False) if name == "bubblewrap-watchdog" else Bubblewrap()


@pytest.fixture(scope="module", params=BACKENDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Each backend in turn."""
    made = _make(request.param, request)
    yield made
    made.close()


@pytest.fixture(scope="module")
def bubblewrap() -> Iterator[Bubblewrap]:
    """The default backend."""
    made = Bubblewrap()
    yield made
    made.close()


@pytest.fixture
def backend_name(request: pytest.FixtureRequest) -> str:
    """The parameter of `sandbox`."""
    return str(request.node.callspec.params["sandbox"])
