"""The bars of the main job: start of the command line, wall time against the engines' own, and the parent's memory.

Prints medians and ratios measured in one run; asserts nothing (a noisy machine must not turn a test red).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GATE = [sys.executable, "-P", "-m", "gate"]


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def start_up(runs: int = 20) -> None:
    ours, clicks = [], []
    for _ in range(runs):
        ours.append(seconds([*GATE, "--help"]))
        clicks.append(seconds([sys.executable, "-c", "import click"]))
    ours_s, click_s = statistics.median(ours), statistics.median(clicks)
    print(
        f"gate --help {ours_s:.3f} s, import click {click_s:.3f} s, ratio {ours_s / click_s:.2f} (bar: under 2)"
    )


def peak_mb(pid: int) -> float:
    """Peak resident memory of one process, not of its children."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next(
        (int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0
    )


def whole_run(model: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        began, peak = time.perf_counter(), 0.0
        command = [*GATE, "check", "--model", model, "--out", str(out), "--quiet"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            peak = max(peak, peak_mb(process.pid))
            time.sleep(0.05)
        wall = time.perf_counter() - began
        end = json.loads((out / "end.json").read_text())
    engine = end["engine_s"]
    print(f"gate check --model {model}: exit {process.returncode}, {wall:.1f} s of wall time (bar: under 60)")
    print(f"  engines loading and decoding {engine:.1f} s, ratio {wall / engine:.2f} (bar: at most 1.25)")
    print(f"  parent's peak memory {peak:.0f} MB (bar: under 400)")


if __name__ == "__main__":
    start_up()
    whole_run(sys.argv[1] if len(sys.argv) > 1 else "sample")
