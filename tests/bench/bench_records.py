"""10,000 answers (bar of issue "5."): `gate report` reads them, decides and writes all that is shown, in under 20 s and
500 MB. Half of the answers with the head part from plain's in the middle, and have been graded case by case.

Prints wall time, seconds of the processor (a busy machine moves the one and not the other) and peak memory of the whole
command, medians of 3. Exits 1 where a bar isn't met, going by the processor's seconds.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evals.recording import RunWriter
from evals.records import SCHEMA
from evals.sample import sample_dir
from evals.tokens import TokenTable
from evals.types import Answer, Arm, CaseGrade, Grade, Manifest, Margin, RunEnd, SandboxReport
from gate.policy import default_policy_text, load_policy
from tasks.folder import builtin_tasks
from tasks.types import Task

ANSWERS = 10_000
TOKENS = 400
PLAIN, HEAD = "plain", "mtp@1"


def ids_of(number: int, arm: str, tokens: TokenTable) -> tuple[int, ...]:
    """An answer's ids: words drawn anew for each prompt, and for every other prompt another end with the head."""
    chance = random.Random(number)
    ids = [chance.randrange(len(tokens)) for _ in range(TOKENS)]
    if arm == HEAD and number % 2:
        ids[TOKENS // 2 :] = [chance.randrange(len(tokens)) for _ in range(TOKENS // 2)]
    return tuple(i for i in ids if i not in tokens.control_ids and i not in tokens.stop_ids)


def answers(task: Task, prompts: int, tokens: TokenTable) -> Iterator[Answer]:
    for number in range(prompts):
        for arm in (PLAIN, HEAD):
            ids = ids_of(number, arm, tokens)
            text = tokens.decode(ids)
            two = arm == HEAD
            steps = (1, *[2] * (len(ids) // 2 - 1), *[1] * (len(ids) % 2 + 1)) if two else (1,) * len(ids)
            for repeat in range(2):
                yield Answer(
                    arm,
                    task.name,
                    f"p{number}",
                    repeat,
                    "0" * 64,
                    40,
                    len(ids),
                    ids,
                    text,
                    streamed=text,
                    steps=steps,
                    finish="length",
                    accepted=steps.count(2) if two else None,
                    drafted=len(steps) - 1 if two else None,
                    reported_tokens=len(ids),
                    ttft_s=0.1,
                    decode_s=4.0 + number % 7 / 10,
                    order=2 * number + repeat,
                )


def make_run(path: Path) -> None:
    """A finished run of one task, recorded as `gate check` does but for the wait for the disk."""
    task = next(task for task in builtin_tasks() if task.name == "csv")
    count = ANSWERS // 4
    prompts = tuple(msgspec.structs.replace(task.prompts[0], id=f"p{i}") for i in range(count))
    arms = (
        Arm(PLAIN, "plain", 0, "openvino-genai", "CPU", "a" * 64, None),
        Arm(HEAD, "mtp", 1, "openvino-genai", "CPU", "a" * 64, "b" * 64),
    )
    manifest = Manifest(
        schema=SCHEMA,
        tool_version="0",
        created="2026-11-30T00:00:00+00:00",
        model="bench",
        model_digest_before="c" * 64,
        arms=arms,
        tasks={task.name: task.digest},
        prompts={task.name: tuple(prompt.id for prompt in prompts)},
        repeats={PLAIN: 2, HEAD: 2},
        policy_digest=load_policy(None).digest(),
    )
    with RunWriter.create(path, manifest) as writer:
        writer.sandbox(SandboxReport("bubblewrap", True))
        writer.end(RunEnd(True, "", "c" * 64, 1.0, 1.0))
    shutil.copytree(task.path, path / "tasks" / task.name)
    tokenizer = path / "tokenizer"
    tokenizer.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(sample_dir() / name, tokenizer / name)
    (path / "policy.toml").write_text(default_policy_text())
    (path / "prompts.json").write_bytes(msgspec.json.encode({task.name: prompts}))
    tokens = TokenTable.load(tokenizer)
    encode = msgspec.json.Encoder().encode
    with (path / "answers.jsonl").open("wb") as said, (path / "grades.jsonl").open("wb") as graded:
        for a in answers(task, count, tokens):
            said.write(encode(a) + b"\n")
            cases = tuple(
                CaseGrade(case.name, "fail" if i == 3 else "pass", "x" * 80, "y" * 80)
                for i, case in enumerate(task.cases)
            )
            graded.write(encode(Grade(a.arm, a.task, a.prompt, a.repeat, cases, "d" * 64)) + b"\n")
    noise = {"p50": 0.01, "p90": 0.1, "p99": 0.3, "max": 0.6}
    with (path / "margins.jsonl").open("wb") as measured:
        for number in range(1, count, 2):
            at = TOKENS // 2
            margin = Margin(HEAD, task.name, f"p{number}", 0, at, 2, 0.01, 0.0, 0.01, noise, "paged", True)
            measured.write(encode(margin) + b"\n")


def report(path: Path) -> tuple[float, float, float]:
    """Wall seconds, the processor's seconds and peak megabytes of `gate report`."""
    began = time.perf_counter()
    command = [sys.executable, "-P", "-m", "gate", "report", str(path), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"gate report exited with {process.returncode}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make_run(run)
        size = sum(file.stat().st_size for file in run.glob("*.jsonl")) / 1e6
        page = []
        taken = []
        for _ in range(3):
            taken.append(report(run))
            page.append((run / "report.html").stat().st_size / 1e6)
    wall, cpu, peak = (statistics.median(column) for column in zip(*taken, strict=True))
    print(f"{ANSWERS} answers of {TOKENS} tokens, {size:.0f} MB of records, {page[0]:.1f} MB of report")
    print(
        f"gate report: {wall:.1f} s of wall time, {cpu:.1f} s of the processor (bar: under 20), "
        f"{peak:.0f} MB at peak (bar: under 500)"
    )
    met = cpu < 20 and peak < 500
    print("met" if met else "NOT MET")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
