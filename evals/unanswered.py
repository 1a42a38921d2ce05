"""Answers that a server owes: what it left unanswered is set aside when a run goes on, so that it is asked for again.

Only failures that say nothing of the model (`evals.types.INFRA`: no connection, 429, 5xx, no API there), and the later
turns of conversations that weren't asked because of one. A reply that was cut, that stalled or that can't be read is
what a client gets: asking until it comes whole would hide that.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from evals.records import RunReader, WriteError
from evals.types import INFRA, Answer
from tasks.types import conversation_of

ANSWERS, GRADES, UNANSWERED = "answers.jsonl", "grades.jsonl", "unanswered.jsonl"


def set_aside(run: Path) -> int:
    """Move a run's owed answers to unanswered.jsonl, and drop their grades. Returns how many. Each file is replaced
    whole, answers.jsonl last, so that a crash in between leaves a run that is set aside again. Raises WriteError."""
    reader = RunReader(run)
    unmet = {_conversation(a) for a in reader.answers() if a.failure is not None and a.failure.kind in INFRA}
    if not unmet:
        return 0
    encode = msgspec.json.Encoder().encode
    kept, owed = run / f"{ANSWERS}.part", run / f"{UNANSWERED}.part"
    graded = set()
    earlier = set(map(encode, reader.unanswered()))
    count = 0
    grades = run / f"{GRADES}.part"
    try:
        for part in (kept, owed, grades):
            part.unlink(missing_ok=True)  # a link there would be followed out of the run
        with kept.open("xb") as answers, owed.open("xb") as unanswered:
            unanswered.writelines(line + b"\n" for line in map(encode, reader.unanswered()))
            for answer in reader.answers():
                line = encode(answer)
                if not _is_owed(answer, unmet):
                    answers.write(line + b"\n")
                    continue
                count += 1
                if answer.probe is None:
                    graded.add((answer.arm, answer.task, answer.prompt, answer.repeat))
                if line not in earlier:
                    unanswered.write(line + b"\n")
            for file in (answers, unanswered):
                file.flush()
                os.fsync(file.fileno())
        with grades.open("xb") as file:
            for grade in reader.grades():
                if (grade.arm, grade.task, grade.prompt, grade.repeat) not in graded:
                    file.write(encode(grade) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        owed.replace(run / UNANSWERED)
        grades.replace(run / GRADES)
        kept.replace(run / ANSWERS)
    except OSError as error:
        raise WriteError(f"{run}: cannot be written ({error.strerror}).") from error
    return count


def _conversation(answer: Answer) -> tuple[str, str, str, int, int, str | None]:
    """What later turns share with the turns before them; a question by itself is a conversation of one."""
    first = conversation_of(answer.prompt)
    return answer.arm, answer.task, first, answer.repeat, answer.session, answer.probe


def _is_owed(answer: Answer, unmet: set[tuple[str, str, str, int, int, str | None]]) -> bool:
    """Whether a server left it unanswered, or left a turn before it so."""
    failure = answer.failure
    if failure is None:
        return False
    return failure.kind in INFRA or (failure.kind == "error" and _conversation(answer) in unmet)
