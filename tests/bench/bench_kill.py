"""Kills -9 at random moments of a run (bar of issue "5."): 50 of them, and the resumed verdict is that of a run that
nobody killed, no answer is lost or there twice, and none but the one in flight is decoded again.

Half of the kills come at a random time after the start, half a random moment after a file of the run was begun or grew
(answers, grades, margins, the end, the verdict, the report), so that no phase is left out. A run that ends in spite of
it is held against the whole one, and the next is begun. Usage: bench_kill.py [kills] [seed]. Exits 1 where the bar
isn't met.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from evals.records import RunReader
from tasks.folder import builtin_tasks

GATE = [sys.executable, "-P", "-m", "gate", "check", "--model", "sample"]
OPTIONS = ["--no-control", "--no-state-probe", "--quiet"]
PHASES = (
    "manifest.json",
    "answers.jsonl",
    "grades.jsonl",
    "margins.jsonl",
    "end.json",
    "verdict.json",
    "report.html",
)
LATEST_S = 6.0
PATIENCE_S = 300.0


def make_tasks(folder: Path) -> list[str]:
    """Two small tasks: counting (nothing is run), and a program whose answers part on most machines (margins)."""
    for name, prompt in (("count", "p1"), ("iso8601", "p4")):
        task = next(task for task in builtin_tasks() if task.name == name)
        shutil.copytree(task.path, folder / f"small-{name}")
        file = folder / f"small-{name}" / "task.toml"
        file.write_text(file.read_text().replace(f'name = "{name}"', f'name = "small-{name}"'))
        prompts = folder / f"small-{name}" / "prompts.toml"
        _, *blocks = prompts.read_text().partition("[variants]")[0].split("[[prompt]]")
        prompts.write_text("".join(f"[[prompt]]{block}" for block in blocks if f'"{prompt}"' in block))
    return ["--tasks", str(folder), "--task", "small-count", "--task", "small-iso8601"]


def start(tasks: list[str], out: Path) -> subprocess.Popen[bytes]:
    command = [*GATE, *tasks, *OPTIONS, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def moment(process: subprocess.Popen[bytes], out: Path, chance: random.Random) -> str | None:
    """Wait until it is time to kill; the phase, or None where the process ended before."""
    began = time.monotonic()
    if chance.random() < 0.5:
        until, phase, wait = chance.uniform(0.5, LATEST_S), "any", 0.0
    else:
        until, phase, wait = PATIENCE_S, chance.choice(PHASES), chance.uniform(0, 0.5)
    file = out / phase
    before = file.stat().st_mtime_ns if file.exists() else None
    while time.monotonic() - began < until:
        if process.poll() is not None:
            return None
        if file.exists() and file.stat().st_mtime_ns != before:
            time.sleep(wait)
            break
        time.sleep(0.002)
    return phase if process.poll() is None else None


def kill(process: subprocess.Popen[bytes]) -> int:
    """kill -9, the parent alone; how many of its children were still there a minute later (they are ended then).

    A child that was just being started notices its parent's death when it first reads.
    """
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    return len(alive)


def told(run: Path) -> object:
    """What a run says, without what every run measures anew: dates and speeds."""
    verdict = json.loads((run / "verdict.json").read_text())
    tasks = [
        (t["task"], t["arm"], t["decision"], t["reasons"], t["identical"], t["lost"], t["gained"])
        for t in verdict["tasks"]
    ]
    reader = RunReader(run)
    answers = {a.key: (a.ids, a.text, a.finish, a.accepted, a.drafted) for a in reader.answers()}
    grades = {(g.arm, g.task, g.prompt, g.repeat): [c.outcome for c in g.cases] for g in reader.grades()}
    margins = {(m.arm, m.task, m.prompt, m.repeat): (m.token_index, m.rank) for m in reader.margins()}
    complete = reader.end is not None and reader.end.complete
    return verdict["decision"], verdict["reasons"], tasks, answers, grades, margins, complete


def lines(run: Path) -> list[bytes]:
    file = run / "answers.jsonl"
    return (
        [line for line in file.read_bytes().splitlines(True) if line.endswith(b"\n")] if file.exists() else []
    )


def doubles(run: Path) -> int:
    keys = [
        (d["arm"], d["task"], d["prompt"], d["repeat"], d["session"], d["probe"])
        for d in map(json.loads, lines(run))
    ]
    return len(keys) - len(set(keys))


def main(wanted: int, seed: int) -> int:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="bench-kill-") as folder:
        (Path(folder) / "tasks").mkdir()
        tasks = make_tasks(Path(folder) / "tasks")
        whole = Path(folder) / "whole"
        code = start(tasks, whole).wait()
        expected = told(whole)
        kills: Counter[str] = Counter()
        lost = double = left = unlike = ended = 0
        run = Path(folder) / "run-0"
        while kills.total() < wanted or not (run / "verdict.json").exists():
            before = lines(run)
            process = start(tasks, run)
            phase = moment(process, run, chance) if kills.total() < wanted else None
            if phase is not None:
                left += kill(process)
                kills[phase] += 1
            else:
                unlike += process.wait() != code or told(run) != expected
                ended += 1
            after = lines(run)
            lost += after[: len(before)] != before
            double += doubles(run)
            print(f"{kills.total()} kills, {ended} runs ended, {len(after)} answers", file=sys.stderr)
            if phase is None and kills.total() < wanted:
                run = Path(folder) / f"run-{ended}"
        answers = len(lines(whole))
    print(
        f"{kills.total()} kills -9 in {ended} runs of {answers} answers, by phase: {dict(sorted(kills.items()))}"
    )
    print(f"  answers lost after {lost} kills (bar: 0), there twice: {double} (bar: 0)")
    print(f"  runs that ended unlike the one nobody killed: {unlike} of {ended} (bar: 0)")
    print(f"  processes left a minute after their parent's death: {left} (bar: 0)")
    return 1 if lost or double or unlike or left else 0


if __name__ == "__main__":
    sys.exit(
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 50, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    )
