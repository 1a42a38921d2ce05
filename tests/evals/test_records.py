"""The threat: answers lost to a crash or a full disk, two writers in one run, records believed that were changed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from evals.recording import RunDirError, RunWriter
from evals.records import RecordError, RunReader, WriteError
from evals.types import Answer, Arm, CaseGrade, Failure, Grade, Manifest, Margin, RunEnd, SandboxReport


def arm(name: str = "plain", **fields: object) -> Arm:
    values: dict[str, object] = {
        "method": "plain",
        "k": 0,
        "engine": "openvino-genai",
        "device": "CPU",
        "target_digest": "t" * 64,
        "head_digest": None,
    }
    return Arm(name=name, **{**values, **fields})  # type: ignore[arg-type]


def manifest(**fields: object) -> Manifest:
    values: dict[str, object] = {
        "schema": 1,
        "tool_version": "0",
        "created": "2026-01-01T00:00:00Z",
        "model": "m",
        "model_digest_before": "d",
        "arms": (arm(),),
        "tasks": {"csv": "1"},
        "prompts": {"csv": ("a", "b")},
        "repeats": {"plain": 2},
        "policy_digest": "p",
    }
    return Manifest(**{**values, **fields})  # type: ignore[arg-type]


def answer(prompt: str = "a", repeat: int = 0, **fields: object) -> Answer:
    values: dict[str, object] = {"prompt_sha256": "s", "prompt_tokens": 3, "max_new_tokens": 9, "ids": (1, 2)}
    return Answer(arm="plain", task="csv", prompt=prompt, repeat=repeat, **{**values, **fields})  # type: ignore[arg-type]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    odd = answer(text='é\u2028"\n\x00', steps=(1, 1), failure=Failure(kind="crash", message="x", signal=11))
    grade = Grade(arm="plain", task="csv", prompt="a", repeat=0, cases=(CaseGrade(case="c", outcome="pass"),))
    margin = Margin(
        arm="mtp@1", task="csv", prompt="a", repeat=0, token_index=1, rank=2, gap=0.1, gap_at_verify_width=None,
        movement=None, noise={"p50": 0.1}, source="paged", reproduced=True,
    )  # fmt: skip
    report = SandboxReport(name="bwrap", trusted=True)
    end = RunEnd(complete=True, reason="", model_digest_after="d", wall_s=1.0, engine_s=0.5)
    with RunWriter.create(tmp_path / "run", manifest()) as writer:
        writer.answer(answer())
        writer.answer(odd)
        writer.grade(grade)
        writer.margin(margin)
        writer.sandbox(report)
        writer.end(end)
    reader = RunReader(tmp_path / "run")
    assert reader.manifest == manifest()
    assert list(reader.answers()) == [answer(), odd]
    assert list(reader.answers()) == [answer(), odd]
    assert (list(reader.grades()), list(reader.margins())) == ([grade], [margin])
    assert (reader.sandbox, reader.end, reader.torn) == (report, end, ())


def test_a_run_cut_short_is_readable_without_its_end(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, manifest()) as writer:
        writer.answer(answer())
        reader = RunReader(tmp_path)
        assert list(reader.answers()) == [answer()]
        assert (list(reader.grades()), reader.sandbox, reader.end) == ([], None, None)


@pytest.mark.parametrize("kept", [1, 20, -1], ids=["one byte", "some", "all but the newline"])
def test_a_torn_last_line_is_dropped_and_reported(kept: int, tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, manifest()) as writer:
        writer.answer(answer("a"))
        writer.answer(answer("b", text="x" * 200_000))
    file = tmp_path / "answers.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1][:kept])
    reader = RunReader(tmp_path)
    assert list(reader.answers()) == [answer("a")]
    assert len(reader.torn) == 1
    assert "answers.jsonl" in reader.torn[0]
    with RunWriter.resume(tmp_path, manifest()) as writer:
        assert writer.done == {answer("a").key}
        assert len(writer.torn) == 1
        writer.answer(answer("b"))
    assert list(RunReader(tmp_path).answers()) == [answer("a"), answer("b")]
    assert RunReader(tmp_path).torn == ()


@pytest.mark.parametrize(
    "line",
    [b"{}\n", b"garbage\n", b"\n", b"[" * 100_000 + b"\n", b'{"arm": "\xff"}\n'],
    ids=["empty", "text", "blank", "deep", "bytes"],
)
def test_a_corrupt_line_is_an_error_with_its_number(line: bytes, tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, manifest()) as writer:
        writer.answer(answer())
    with (tmp_path / "answers.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(RecordError, match=r"answers\.jsonl, line 2"):
        list(RunReader(tmp_path).answers())
    with pytest.raises(RecordError, match="line 2"):
        RunWriter.resume(tmp_path, manifest())


def test_an_unknown_field_is_an_error_not_a_guess(tmp_path: Path) -> None:
    RunWriter.create(tmp_path, manifest()).close()
    fields = msgspec.to_builtins(answer()) | {"extra": 1}
    (tmp_path / "answers.jsonl").write_bytes(msgspec.json.encode(fields) + b"\n")
    with pytest.raises(RecordError, match="extra"):
        list(RunReader(tmp_path).answers())


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RecordError, match="expected a run's directory"):
            RunReader(path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RecordError, match="Manifest"):
        RunReader(tmp_path)


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    RunWriter.create(tmp_path, manifest()).close()
    with pytest.raises(RunDirError, match="another --out"):
        RunWriter.create(tmp_path, manifest(model="other"))
    assert RunReader(tmp_path).manifest.model == "m"
    RunWriter.resume(tmp_path, manifest()).close()


@pytest.mark.parametrize("name", ["answers.jsonl", "grades.jsonl", "margins.jsonl"])
def test_records_without_their_manifest_are_not_added_to(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b'{"arm": "pl')
    with pytest.raises(RunDirError, match=f"found {name} in it"):
        RunWriter.create(tmp_path, manifest())
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != "run.lock") == [name]


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from evals.records import *; from evals.recording import *; import msgspec\n"
        "from evals.types import Manifest\n"
        f"m = RunReader({str(tmp_path)!r}).manifest\n"
        "try: RunWriter.resume(sys.argv[1], m)\n"
        "except RunDirError as error: print(error)\n"
    )

    def second() -> str:
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd()).stdout

    with RunWriter.create(tmp_path, manifest()):
        assert "in use by another process" in second()
    assert second() == ""


def test_resuming_another_run_says_what_differs(tmp_path: Path) -> None:
    RunWriter.create(tmp_path, manifest()).close()
    for other, words in [
        (manifest(arms=(arm(device="GPU.0"),)), ["arm plain", "device (CPU then, GPU.0 now)"]),
        (manifest(arms=(arm(), arm("mtp@1"))), ["arms were plain, now they are plain, mtp@1"]),
        (manifest(tasks={"csv": "2"}), ["tasks differ for csv"]),
        (manifest(prompts={"csv": ("a",)}), ["prompts differ for csv"]),
        (manifest(repeats={"plain": 3}), ["repeats differ for plain"]),
        (manifest(policy_digest="q"), ["policy_digest differ"]),
        (manifest(schema=2), ["schema 1", "writes 2"]),
    ]:
        with pytest.raises(RunDirError) as caught:
            RunWriter.resume(tmp_path, other)
        for word in words:
            assert word in str(caught.value)
    later = manifest(created="2027-01-01T00:00:00Z", environment={"host": "x"})
    with RunWriter.resume(tmp_path, later) as writer:
        assert writer.done == set()


def test_resuming_forgets_the_old_end(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, manifest()) as writer:
        writer.end(RunEnd(complete=False, reason="budget", model_digest_after=None, wall_s=1, engine_s=1))
    RunWriter.resume(tmp_path, manifest()).close()
    assert RunReader(tmp_path).end is None


def test_a_full_disk_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunWriter.create(tmp_path, manifest()) as writer:
        writer.answer(answer("a"))

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match=r"answers\.jsonl.*No space left"):
            writer.answer(answer("b"))
        with pytest.raises(WriteError, match="No space left"):
            writer.end(RunEnd(complete=False, reason="", model_digest_after=None, wall_s=0, engine_s=0))
        monkeypatch.undo()
    reader = RunReader(tmp_path)
    assert list(reader.answers()) == [answer("a")]
    assert (reader.torn, reader.end) == ((), None)


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="can be written"):
        RunWriter.create(tmp_path / "file", manifest())


def test_a_pipe_in_place_of_a_file_is_refused_and_not_read(tmp_path: Path) -> None:
    RunWriter.create(tmp_path, manifest()).close()
    os.mkfifo(tmp_path / "answers.jsonl")
    with pytest.raises(RecordError, match="pipe"):
        list(RunReader(tmp_path).answers())
    (tmp_path / "manifest.json").unlink()
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(RecordError, match="pipe"):
        RunReader(tmp_path)
