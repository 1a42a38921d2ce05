"""The threat: a run that keeps a server's bad hour for ever; or one that asks until a broken reply comes whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals.recording import RunWriter
from evals.records import RunReader
from evals.types import INFRA, Answer, CaseGrade, Failure, FailureKind, Grade
from tests.evals.test_records import answer, manifest


def failed(kind: FailureKind, prompt: str = "a", repeat: int = 0, **fields: object) -> Answer:
    return answer(prompt, repeat, failure=Failure(kind=kind, message=f"{kind} happened"), **fields)


def grade(prompt: str, repeat: int = 0) -> Grade:
    cases = (CaseGrade(case="c", outcome="fail"),)
    return Grade(arm="plain", task="csv", prompt=prompt, repeat=repeat, cases=cases)


def write(run: Path, *answers: Answer) -> None:
    with RunWriter.create(run, manifest()) as writer:
        for one in answers:
            writer.answer(one)
            writer.grade(grade(one.prompt, one.repeat))


@pytest.mark.parametrize("kind", sorted(INFRA))
def test_what_a_server_left_unanswered_is_owed_again(kind: FailureKind, tmp_path: Path) -> None:
    good = answer("b")
    write(tmp_path, failed(kind), good, failed(kind, repeat=1))
    with RunWriter.resume(tmp_path, manifest()) as writer:
        assert writer.done == {good.key} and writer.asked_again == 2
        assert writer.notes == ("2 answers that servers had left unanswered are asked for again",)
        writer.answer(answer("a"))
    reader = RunReader(tmp_path)
    assert list(reader.answers()) == [good, answer("a")]
    assert list(reader.grades()) == [grade("b")], "a grade of no answer would stand for the one that comes"
    assert list(reader.unanswered()) == [failed(kind), failed(kind, repeat=1)]
    assert not [f.name for f in tmp_path.iterdir() if f.name.endswith(".part")]


@pytest.mark.parametrize("kind", ["cut", "stalled", "malformed", "crash", "hang", "error", "refused"])
def test_what_a_client_gets_is_not_asked_until_it_is_well(kind: FailureKind, tmp_path: Path) -> None:
    write(tmp_path, failed(kind))
    before = (tmp_path / "answers.jsonl").read_bytes()
    with RunWriter.resume(tmp_path, manifest()) as writer:
        assert writer.done == {failed(kind).key} and not writer.notes
    assert (tmp_path / "answers.jsonl").read_bytes() == before
    assert not (tmp_path / "unanswered.jsonl").exists()


def test_turns_that_were_not_asked_for_lack_of_one_are_owed_too(tmp_path: Path) -> None:
    later = failed("error", "a.2")
    elsewhere = [
        failed("error", "a.2", repeat=1),
        failed("error", "b.2"),
        failed("error", "a.2", probe="state"),
    ]
    write(tmp_path, failed("unreachable", "a"), later, *elsewhere)
    with RunWriter.resume(tmp_path, manifest()) as writer:
        assert writer.done == {one.key for one in elsewhere}


def test_each_going_on_adds_what_it_met_and_nothing_twice(tmp_path: Path) -> None:
    """Also where a crash came between the files: what is set aside is there already, the answers aren't yet without."""
    write(tmp_path, failed("unreachable"))
    (tmp_path / "unanswered.jsonl").write_bytes((tmp_path / "answers.jsonl").read_bytes())
    RunWriter.resume(tmp_path, manifest()).close()
    assert list(RunReader(tmp_path).unanswered()) == [failed("unreachable")]
    with RunWriter.resume(tmp_path, manifest()) as writer:
        assert writer.asked_again == 0
        writer.answer(failed("rate_limited"))
    RunWriter.resume(tmp_path, manifest()).close()
    assert list(RunReader(tmp_path).unanswered()) == [failed("unreachable"), failed("rate_limited")]
    assert list(RunReader(tmp_path).answers()) == []


def test_a_link_in_the_run_is_not_followed_out_of_it(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    write(tmp_path / "run", failed("unreachable"), answer("b"))
    for name in ("answers", "grades", "unanswered"):
        (tmp_path / "run" / f"{name}.jsonl.part").symlink_to(victim)
    with RunWriter.resume(tmp_path / "run", manifest()) as writer:
        assert writer.asked_again == 1
    assert victim.read_text() == "precious"
    assert not any(path.is_symlink() for path in (tmp_path / "run").iterdir())
