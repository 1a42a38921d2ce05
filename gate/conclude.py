"""From a run directory to a verdict, at any time and without decoding: read, compare, decide.

A run directory holds its tasks, prompts and policy beside its records, so that it can be read wherever it is taken.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from evals.diff import compare
from evals.records import RecordError, RunReader
from evals.tokens import run_tokens
from evals.types import Answer, Comparison
from gate.evidence import RunEvidence
from gate.gathering import collect
from gate.policy import Policy
from gate.types import Verdict
from gate.verdict import decide
from tasks.depth import at_depth, base_and_depth
from tasks.folder import builtin_tasks, load_task
from tasks.types import Task


class Concluded(msgspec.Struct, frozen=True):
    """A run, read and decided."""

    run: Path
    records: RunReader
    tasks: dict[str, Task]
    evidence: RunEvidence
    verdict: Verdict


def conclude(run: Path, policy: Policy) -> Concluded:
    """Read a run directory and decide. Raises RecordError, TaskError or TokenError (ValueErrors)."""
    records = RunReader(run)
    tasks = read_tasks(records)
    tokens = run_tokens(run, records.manifest.arms)

    def compared(base: Answer, other: Answer) -> Comparison:
        return compare(base, other, tokens)

    evidence = collect(records, tasks, compared)
    return Concluded(run, records, tasks, evidence, decide(evidence, policy))


def read_tasks(records: RunReader) -> dict[str, Task]:
    """The tasks as the run kept them, with the prompts that it decoded. Raises TaskError or RecordError."""
    run = records.path
    ours = {task.digest for task in builtin_tasks()}
    prompts = records.prompts()
    found = {}
    for name, digest in records.manifest.tasks.items():
        base, depth = base_and_depth(name)
        if base in ("", "..") or Path(base).name != base:
            raise RecordError(f"{run}: expected the name of a task, found {name!r}: the manifest was changed")
        task = load_task(run / "tasks" / base)
        if depth is not None:
            task = at_depth(task, depth)
        if task.digest != digest or task.name != name:
            raise RecordError(
                f"{run / 'tasks' / base}: expected task {name} as it was in the run (digest {digest[:12]}…), "
                f"found {task.name} with digest {task.digest[:12]}…: take the run directory from where it was made"
            )
        found[name] = msgspec.structs.replace(
            task, prompts=prompts.get(name, task.prompts), builtin=digest in ours
        )
    return found
