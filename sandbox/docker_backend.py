"""The Docker backend: a fresh, hardened container a program, through docker-py.

For machines where namespaces can't be made by users, where gVisor (`runtime="runsc"`) is wanted, or where Docker is
what a house trusts. A limit that the host can't enforce is only mentioned in `Warnings` of the create response: such
a container is refused. Files come in by a read-only bind mount; nothing is mounted writable but a bounded tmpfs.
"""

import atexit
import contextlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests
from docker.types import LogConfig, Mount, Ulimit

from sandbox import interpreters
from sandbox.contract import ENVIRONMENT, Limits, Outcome, Probe, Program, SandboxUnavailable, Status
from sandbox.docker_seccomp import profile
from sandbox.docker_session import DockerSession

IMAGE = "mtp-gate-sandbox:1"
LABEL = "mtp-gate.sandbox"
USER = "65534:65534"
FILES = 4096  # inodes of /tmp
GAPS = "CPU seconds of children that have ended are a lower bound"
SHARED_MEMORY = "size=1m,nr_inodes=64"
TIMEOUT_S = 60
BUILD_TIMEOUT_S = 900  # a step may be silent while it fetches packages
PINNED = re.compile(r"(?:[a-z0-9][a-zA-Z0-9._:/-]{0,254}@)?sha256:[0-9a-f]{64}")
STALE_S = 3600
MASKED = """
/sys /dev/mqueue /proc/acpi /proc/asound /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/sched_debug
/proc/scsi /proc/timer_list /proc/timer_stats
""".split()  # noqa: SIM905
FAULTS = (docker.errors.DockerException, requests.exceptions.RequestException)


class DockerSandbox:
    """`Sandbox` by Docker. Raises SandboxUnavailable when made where no daemon answers or the image is missing.

    base_url: of the daemon; None is the environment's (DOCKER_HOST). runtime: e.g. "runsc", None is the daemon's own.
    """

    name = "docker"

    def __init__(self, base_url: str | None = None, image: str = IMAGE, runtime: str | None = None):
        try:
            self._client = connect(base_url)
            self._server = self._client.version()
            self._info = self._client.info()
            self._image_id = self._client.images.get(image).id
        except docker.errors.ImageNotFound as error:
            raise SandboxUnavailable(
                f"docker: expected an image {image}; make it with `gate sandbox build`"
            ) from error
        except FAULTS as error:
            raise SandboxUnavailable(_no_daemon(error)) from error
        self._sweep()
        self._runtime = runtime or os.environ.get("GATE_DOCKER_RUNTIME") or None
        self._seccomp = json.dumps(profile())
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._known: dict[str, bool] = {}
        self._open: set[DockerSession] = set()
        atexit.register(self.close)

    def _sweep(self) -> None:
        """Remove the containers that killed processes of ours left behind, an hour ago or more."""
        for left in self._client.api.containers(all=True, filters={"label": LABEL}):
            if time.time() - left["Created"] > STALE_S:
                with contextlib.suppress(*FAULTS):
                    self._client.api.remove_container(left["Id"], force=True, v=True)

    def run(self, program: Program, limits: Limits) -> Outcome:
        try:
            with self._start(program, limits, session=False) as running:
                return running.communicate(program.stdin)
        except SandboxUnavailable as error:
            return Outcome(status=Status.INFRA, detail=str(error))

    def open(self, program: Program, limits: Limits) -> DockerSession:
        return self._start(program, limits, session=True)

    def self_test(self) -> tuple[Probe, ...]:
        from sandbox.self_test import attack

        return attack(self)

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": self.name,
            "version": self._server.get("Version", ""),
            "kernel": self._server.get("KernelVersion", ""),
            "control": f"cgroup v{self._info.get('CgroupVersion', '1')}",
            "runtime": self._runtime or self._info.get("DefaultRuntime", ""),
            "image": self._image_id,
            "gaps": GAPS,
        }

    def close(self) -> None:
        atexit.unregister(self.close)
        with self._lock:
            sessions = list(self._open)
        for session in sessions:
            session.close()
        self._client.close()

    def _start(self, program: Program, limits: Limits, *, session: bool) -> DockerSession:
        self._require_interpreter(program.language)
        path = interpreters.CANDIDATES[program.language][0]
        options = interpreters.arguments(program.language, program.environment)
        command = [path, *options, f"/code/{program.entry}", *program.argv]
        return self._launch(command, program, limits, session=session)

    def _require_interpreter(self, language: str) -> None:
        """An image of the user's own may lack one; that is nothing a program did."""
        with self._asking:
            if language not in self._known:
                probe = Program(files={"probe": b""}, entry="probe")
                command = [interpreters.CANDIDATES[language][0], "-v" if language == "lua" else "--version"]
                with self._launch(command, probe, Limits(), session=False) as running:
                    self._known[language] = running.communicate(b"").exit_code == 0
        if not self._known[language]:
            raise SandboxUnavailable(f"docker image {self._image_id}: {interpreters.missing(language)} in it")

    def _launch(
        self, command: list[str], program: Program, limits: Limits, *, session: bool
    ) -> DockerSession:
        folder = Path(tempfile.mkdtemp(prefix=f"mtp-gate-code-{os.getpid()}-"))
        try:
            _write(folder, program.files)
            api = self._client.api
            created = api.create_container(
                self._image_id,
                command,
                entrypoint=[],
                environment={**ENVIRONMENT, **program.environment},
                user=USER,
                working_dir="/tmp",  # noqa: S108
                hostname="sandbox",
                network_disabled=True,
                stdin_open=True,
                labels={LABEL: str(os.getpid())},
                healthcheck={"test": ["NONE"]},
                host_config={
                    **api.create_host_config(**self._host_config(folder, limits, session)),
                    "MaskedPaths": MASKED,
                },
            )
        except FAULTS as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise SandboxUnavailable(f"docker: a container couldn't be made: {error}") from error
        made = DockerSession(api, created["Id"], folder, limits, self._forget)
        if created.get("Warnings"):
            made.close()
            raise SandboxUnavailable(
                f"docker: expected every limit to be enforced, found {'; '.join(created['Warnings'])}; "
                "enable the memory, swap and pids controllers of the host"
            )
        made.start()
        with self._lock:
            self._open.add(made)
        return made

    def _forget(self, session: DockerSession) -> None:
        with self._lock:
            self._open.discard(session)

    def _host_config(self, folder: Path, limits: Limits, session: bool) -> dict[str, Any]:
        bounds = {"nofile": limits.open_files, "fsize": limits.file_bytes, "core": 0}
        if not session:  # whose allowance begins again with each call
            bounds["cpu"] = int(limits.cpu_s) + 2
        scratch = f"rw,nosuid,nodev,noexec,size={limits.tmp_bytes},nr_inodes={FILES},mode=1777"
        return {
            "network_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true", f"seccomp={self._seccomp}"],
            "pids_limit": limits.processes + 1,  # docker-init is one
            "mem_limit": limits.memory_bytes,
            "memswap_limit": limits.memory_bytes,
            "nano_cpus": int(limits.cores * 1e9),
            "ulimits": [Ulimit(name=name, soft=value, hard=value) for name, value in bounds.items()],
            "init": True,
            "ipc_mode": "none",
            "tmpfs": {"/tmp": scratch, "/dev/shm": f"rw,nosuid,nodev,noexec,{SHARED_MEMORY},mode=1777"},  # noqa: S108
            "mounts": [Mount("/code", str(folder), type="bind", read_only=True)],
            "log_config": LogConfig(type="none"),
            "runtime": self._runtime,
        }


@cache
def _context() -> Path:
    return Path(__file__).parent / "image"


def connect(base_url: str | None, timeout_s: int = TIMEOUT_S) -> "docker.DockerClient":
    """A client of the daemon, which has answered. Raises docker's and requests' exceptions."""
    if base_url:
        return docker.DockerClient(base_url=base_url, version="auto", timeout=timeout_s)
    return docker.from_env(version="auto", timeout=timeout_s)


def build_image(
    base_url: str | None = None, tag: str = IMAGE, base: str | None = None, network: str | None = None
) -> str:
    """Build the image from the Dockerfile (needs its base and a Debian mirror); its id.

    base: another base than the Dockerfile's, e.g. a mirror's copy, pinned: NAME@sha256:DIGEST or the id of an image
    that the daemon has. network: as `docker build --network`. Raises SandboxUnavailable with the last lines of the
    build, or for a base that isn't pinned.
    """
    if base is not None and not PINNED.fullmatch(base):
        raise SandboxUnavailable(
            f"--base: expected an image pinned by its digest, NAME@sha256:… or sha256:…, found {base!r}; "
            "`docker images --digests` prints them"
        )
    try:
        image, _ = connect(base_url, BUILD_TIMEOUT_S).images.build(
            path=str(_context()),
            tag=tag,
            rm=True,
            forcerm=True,
            pull=False,
            network_mode=network,
            buildargs={"BASE": base} if base else {},
        )
    except docker.errors.BuildError as error:
        lines = [entry.get("stream", entry.get("error", "")).strip() for entry in error.build_log]
        raise SandboxUnavailable("docker build failed:\n" + "\n".join(filter(None, lines[-20:]))) from error
    except docker.errors.APIError as error:
        raise SandboxUnavailable(f"docker build failed: {error.explanation or error}") from error
    except FAULTS as error:
        raise SandboxUnavailable(_no_daemon(error)) from error
    return str(image.id)


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o444)
    for directory in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        directory.chmod(0o755)


def _no_daemon(error: Exception) -> str:
    return (
        f"docker: no daemon answers as it should: {error}; start it (systemctl start docker), join its group "
        "(usermod -aG docker USER, then log in again), or set DOCKER_HOST"
    )
