"""The threat: pruning removes what isn't a run, follows a link out of the directory, or takes a run in use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.recording import RunWriter
from evals.types import Arm, Manifest, RunEnd
from gate.runs import Run, RunsError, choose, list_runs, read_run, remove
from gate.units import UnitError, parse_age, parse_size, show_size

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def manifest(created: datetime) -> Manifest:
    arm = Arm(
        name="plain",
        method="plain",
        k=0,
        engine="genai",
        device="CPU",
        target_digest="a" * 64,
        head_digest=None,
    )
    return Manifest(
        schema=1,
        tool_version="0.1.0",
        created=created.isoformat(),
        model="sample",
        model_digest_before="a" * 64,
        arms=(arm,),
        tasks={"csv": "c" * 64},
        prompts={"csv": ("w1",)},
        repeats={"plain": 2},
        policy_digest="b" * 64,
    )


@pytest.fixture
def lay_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run with the real writer, `days` old, with a task's folder in it."""

    def lay(name: str, days: float = 1, size: int = 0) -> Path:
        path = tmp_path / "runs" / name
        with RunWriter.create(path, manifest(NOW - timedelta(days=days))) as writer:
            writer.end(RunEnd(complete=True, reason="", model_digest_after=None, wall_s=1, engine_s=1))
        (path / "tasks" / "csv").mkdir(parents=True)
        (path / "tasks" / "csv" / "task.toml").write_text("")
        (path / "verdict.json").write_text('{"decision": "serve"}')
        (path / "answers.jsonl").write_bytes(b"\n" * size)
        return path

    return lay


def listed(root: Path) -> list[str]:
    return [r.path.name for r in list_runs(root)]


def test_runs_are_listed_newest_first_with_age_size_and_verdict(
    lay_run: Callable[..., Path], tmp_path: Path
) -> None:
    for name, days in (("b", 3), ("a", 9), ("c", 1)):
        lay_run(name, days, size=1000)
    runs = list_runs(tmp_path / "runs")
    assert [r.path.name for r in runs] == ["c", "b", "a"]
    assert NOW - runs[2].created == timedelta(days=9)
    assert all(1000 < r.size < 10_000 for r in runs)
    assert {(r.decision, r.complete, r.model, r.foreign) for r in runs} == {("serve", True, "sample", ())}


def test_a_run_that_was_cut_short_is_listed_as_such(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    path = lay_run("a")
    (path / "end.json").unlink()
    (path / "verdict.json").unlink()
    (run,) = list_runs(tmp_path / "runs")
    assert (run.complete, run.decision) == (False, None)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b'{"name": "a web app\'s manifest", "icons": []}',
        b"\xff",
        b"[" * 10_000,
        b'{"schema": 1, "created": "2026-01-01T00:00:00Z", "model": "m", "arms": [], "tasks": {}}',
        b'{"schema": 1, "created": "lately", "model": "m", "arms": [1], "tasks": {}}',
    ],
)
def test_what_is_no_run_is_not_listed(tmp_path: Path, content: bytes | None) -> None:
    root = tmp_path / "runs"
    (root / "project").mkdir(parents=True)
    if content is not None:
        (root / "project" / "manifest.json").write_bytes(content)
    (root / "file").write_text("")
    assert list_runs(root) == ()


def test_a_link_to_a_run_is_no_run(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    path = lay_run("a")
    root = tmp_path / "linked"
    root.mkdir()
    (root / "link").symlink_to(path)
    assert list_runs(root) == ()
    (root / "b").mkdir()
    (root / "b" / "manifest.json").symlink_to(path / "manifest.json")
    assert list_runs(root) == ()


def test_a_pipe_named_manifest_does_not_hang(tmp_path: Path) -> None:
    import os

    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "manifest.json")
    assert list_runs(tmp_path) == ()


def test_a_run_given_as_the_directory_of_runs_is_refused(
    lay_run: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(RunsError, match=r"found one run: .*Give its parent"):
        list_runs(lay_run("a"))
    with pytest.raises(RunsError, match="found none at"):
        list_runs(tmp_path / "nowhere")


def test_a_run_is_removed_whole(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    path = lay_run("old")
    lay_run("other")
    (path / ".report.html.123").write_text("cut")
    (path / ".end.json.part").write_text("cut")
    run = read_run(path)
    assert run is not None and run.foreign == ()
    assert remove(run, "old").removed
    assert not path.exists()
    assert listed(tmp_path / "runs") == ["other"]


def test_a_dry_run_removes_nothing(lay_run: Callable[..., Path]) -> None:
    path = lay_run("old")
    run = read_run(path)
    assert run is not None
    before = sorted(path.rglob("*"))
    removal = remove(run, "old", dry_run=True)
    assert (removal.removed, removal.why) == (True, "old")
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("name", ["thesis.md", ".bashrc", "src/", "tasks.txt", "tokenizer.json", ".git/"])
def test_a_directory_with_anything_else_in_it_stays(lay_run: Callable[..., Path], name: str) -> None:
    path = lay_run("home")
    if name.endswith("/"):
        (path / name).mkdir()
    else:
        (path / name).write_text("mine")
    before = sorted(path.rglob("*"))
    run = read_run(path)
    assert run is not None and run.foreign == (name.rstrip("/"),)
    removal = remove(run, "old")
    assert not removal.removed
    assert name.rstrip("/") in removal.why
    assert sorted(path.rglob("*")) == before


def test_what_came_in_after_the_listing_is_seen(lay_run: Callable[..., Path]) -> None:
    path = lay_run("a")
    run = read_run(path)
    assert run is not None
    (path / "notes.txt").write_text("mine")
    assert not remove(run, "old").removed
    assert (path / "notes.txt").exists()


def test_links_are_not_followed(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("keep me")
    path = lay_run("a")
    (path / "tasks" / "csv" / "link").symlink_to(outside)
    run = read_run(path)
    assert run is not None and remove(run, "old").removed
    assert (outside / "precious.txt").read_text() == "keep me"

    path = lay_run("b")
    (path / "tokenizer").symlink_to(outside)
    run = read_run(path)
    assert run is not None and not remove(run, "old").removed
    assert (outside / "precious.txt").read_text() == "keep me"


def test_a_link_put_in_a_runs_place_stays(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    path, other = lay_run("a"), lay_run("b")
    run = read_run(path)
    assert run is not None
    path.rename(tmp_path / "moved")
    path.symlink_to(other)
    removal = remove(run, "old")
    assert (removal.removed, removal.why) == (False, "no longer the run that it was")
    assert (other / "manifest.json").exists()


def test_another_run_in_its_place_stays(lay_run: Callable[..., Path]) -> None:
    path = lay_run("a", days=9)
    run = read_run(path)
    assert run is not None
    (path / "manifest.json").write_bytes(msgspec.json.encode(manifest(NOW)))
    assert not remove(run, "old").removed
    assert path.exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_run_in_use_stays(lay_run: Callable[..., Path], dry_run: bool) -> None:
    path = lay_run("a")
    run = read_run(path)
    assert run is not None
    with RunWriter.resume(path, manifest(run.created)):
        removal = remove(run, "old", dry_run=dry_run)
    assert (removal.removed, removal.why) == (False, "a process is writing it")
    assert (path / "manifest.json").exists()


def test_a_removal_that_fails_leaves_a_run(
    lay_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    path = lay_run("a")
    run = read_run(path)
    assert run is not None
    unlink, gone = os.unlink, []

    def fails_later(name: Any, *arguments: Any, **options: Any) -> None:
        if len(gone) == 2:
            raise OSError(5, "Input/output error", str(name))
        gone.append(name)
        unlink(name, *arguments, **options)

    monkeypatch.setattr(os, "unlink", fails_later)
    removal = remove(run, "old")
    monkeypatch.undo()
    assert not removal.removed
    assert "Input/output error" in removal.why
    assert len(gone) == 2
    again = read_run(path)
    assert again is not None and remove(again, "old").removed


def made(name: str, days: float, size: int = 10, foreign: tuple[str, ...] = ()) -> Run:
    return Run(Path(name), NOW - timedelta(days=days), size, "sample", None, True, foreign)


def chosen(runs: list[Run], **options: Any) -> list[str]:
    return [run.path.name for run, _ in choose(runs, NOW, **options)]


def test_choosing_by_age() -> None:
    runs = [made("a", 1), made("b", 30), made("c", 31), made("d", 400)]
    assert chosen(runs, older_than=timedelta(days=30)) == ["d", "c"]
    assert chosen(runs, older_than=timedelta(days=30), keep=3) == ["d"]
    assert chosen(runs, older_than=timedelta(0), keep=9) == []


def test_choosing_by_size() -> None:
    runs = [made("a", 1), made("b", 2), made("c", 3)]
    assert chosen(runs, max_total=30) == []
    assert chosen(runs, max_total=29) == ["c"]
    assert chosen(runs, max_total=0) == ["c", "b", "a"]
    assert chosen(runs, max_total=0, keep=2) == ["c"]


def test_what_will_stay_is_counted_too() -> None:
    runs = [made("a", 1), made("b", 2), made("c", 3, foreign=("notes.txt",))]
    assert chosen(runs, max_total=20) == ["c", "b"]


def test_choosing_by_nothing_is_refused() -> None:
    for options in ({}, {"older_than": timedelta(1), "keep": -1}, {"max_total": -1}):
        with pytest.raises(RunsError, match="expected an age or a total size"):
            choose([made("a", 1)], NOW, **options)


@given(
    days=st.lists(st.floats(0, 100), max_size=8),
    sizes=st.lists(st.integers(0, 50), min_size=8, max_size=8),
    max_total=st.integers(0, 300),
    keep=st.integers(0, 9),
)
def test_pruning_by_size_never_takes_a_newer_run_first(
    days: list[float], sizes: list[int], max_total: int, keep: int
) -> None:
    runs = [made(str(i), d, sizes[i]) for i, d in enumerate(days)]
    out = {run.path.name for run, _ in choose(runs, NOW, max_total=max_total, keep=keep)}
    stay = [r for r in runs if r.path.name not in out]
    assert len(stay) >= min(keep, len(runs))
    if stay and out:
        assert min(r.created for r in stay) >= max(r.created for r in runs if r.path.name in out)
    assert sum(r.size for r in stay) <= max_total or len(stay) <= keep or not stay


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30d", timedelta(days=30)),
        ("1.5h", timedelta(hours=1.5)),
        ("90s", timedelta(seconds=90)),
        ("4w", timedelta(28)),
    ],
)
def test_ages(text: str, age: timedelta) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1d 2h", "nan", "1e3d", "٣d", "999999999w"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(UnitError, match="expected an age"):
        parse_age(text)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("10", 10), ("2GB", 2 * 10**9), ("1.5 KiB", 1536), ("3M", 3 * 10**6)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1XB", "1 i", "1iB", "1TiB2"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UnitError, match="expected a size"):
        parse_size(text)


def test_sizes_for_people() -> None:
    assert [show_size(n) for n in (0, 999, 1500, 2 * 10**9)] == ["0 B", "999 B", "1.5 KB", "2.0 GB"]
