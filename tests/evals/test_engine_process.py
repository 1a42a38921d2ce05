"""The threat: an engine that crashes, hangs or talks nonsense takes the run with it, or is taken for an answer."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from evals.engine.child import child_environment
from evals.engine.childside import PARENT
from evals.engine.process import EngineProcess, OutOfTime, Patience
from evals.engine.protocol import Build, Done
from evals.types import Failure

QUICK = Patience(build_s=2.0, first_s=2.0, least_s=2.0, factor=1.0)
Start = Callable[..., EngineProcess]


@pytest.fixture
def fake(repo: Path) -> tuple[str, ...]:
    return (sys.executable, "-P", str(repo / "tests" / "fixtures" / "fake_worker.py"))


@pytest.fixture
def start(fake: tuple[str, ...], tmp_path: Path) -> Iterator[Start]:
    started = []

    def begin(device: str = "CPU", patience: Patience | None = None) -> EngineProcess:
        build = Build(
            model=str(tmp_path), head=None, method="plain", k=0, device=device, properties={}, scheduler={}, stop_ids=()
        )  # fmt: skip
        engine = EngineProcess(build, command=fake, patience=patience)
        started.append(engine)
        engine.start()
        return engine

    yield begin
    for engine in started:
        engine.kill()


def test_an_answer_comes_back(start: Start) -> None:
    engine = start()
    assert engine.ready() is None
    for _ in range(2):
        reply = engine.ask("hello", 10)
        assert isinstance(reply, Done)
        assert reply.ids == (5, 6, 2)


@pytest.mark.parametrize(
    ("word", "kind", "number", "code", "words"),
    [
        ("segv", "crash", signal.SIGSEGV, None, ["SIGSEGV", "about to fail"]),
        ("oom", "crash", signal.SIGKILL, None, ["SIGKILL", "out of memory"]),
        ("exit", "crash", None, 7, ["exited with code 7"]),
        ("error", "error", None, None, ["shape mismatch"]),
        ("refused", "refused", None, None, ["out of cache"]),
        ("garbage", "error", None, None, ["the engine's process sent"]),
        ("flood", "error", None, None, ["longer than 64 MiB"]),
    ],
)
@pytest.mark.parametrize("stage", ["build", "decode"])
def test_faults_come_back_by_name(
    word: str, kind: str, number: int | None, code: int | None, words: list[str], stage: str, start: Start
) -> None:
    engine = start(f"CPU.{word}" if stage == "build" else "CPU")
    reply = engine.ready()
    if stage == "decode":
        assert reply is None
        reply = engine.ask(word, 10)  # type: ignore[assignment]
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.signal, reply.exit_code, reply.stage) == (kind, number, code, stage)
    for text in words:
        assert text in reply.message
    assert "\x1b" not in reply.message
    assert "Exception from" not in reply.message


def test_an_engines_own_error_does_not_end_it(start: Start) -> None:
    engine = start()
    assert engine.ready() is None
    assert isinstance(engine.ask("error", 10), Failure)
    assert engine.alive
    assert isinstance(engine.ask("hello", 10), Done)


@pytest.mark.parametrize("stage", ["build", "decode"])
def test_a_hang_is_ended_and_named(stage: str, start: Start) -> None:
    engine = start("CPU.hang" if stage == "build" else "CPU", QUICK)
    reply = engine.ready() if stage == "build" else (engine.ready(), engine.ask("hang", 10))[1]
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.stage) == ("hang", stage)
    assert "no sign of life for 2 s" in reply.message
    assert not engine.alive


def test_signs_of_life_keep_a_slow_engine_alive(start: Start) -> None:
    engine = start(patience=Patience(first_s=1.5, least_s=1.5, factor=0.0))
    assert engine.ready() is None
    heard: list[int] = []
    assert isinstance(engine.ask("slow 0.7", 10, on_beat=heard.append), Done)
    assert heard == [0, 1, 2, 3]


def test_patience_grows_with_what_was_seen(start: Start) -> None:
    engine = start(patience=Patience(first_s=60, least_s=0.2, factor=12.0))
    assert engine.ready() is None
    assert isinstance(engine.ask("slow 0.1", 10), Done)
    assert isinstance(engine.ask("slow 0.3", 10), Done)
    assert isinstance(engine.ask("hang", 10), Failure)


def test_a_deadline_ends_the_engine_without_a_word_on_it(start: Start) -> None:
    engine = start()
    assert engine.ready() is None
    with pytest.raises(OutOfTime):
        engine.ask("hang", 10, deadline=time.monotonic() + 0.3)
    assert not engine.alive
    with pytest.raises(OutOfTime):
        start("CPU.hang").ready(deadline=time.monotonic() + 0.3)


def test_an_engine_that_prints_much_is_not_blocked(start: Start) -> None:
    engine = start()
    assert engine.ready() is None
    assert isinstance(engine.ask("noise", 10), Done)


def test_killing_takes_what_it_started_along(start: Start, tmp_path: Path) -> None:
    engine = start()
    assert engine.ready() is None
    assert isinstance(engine.ask("child", 10), Done)
    child = psutil.Process(int((tmp_path / "child").read_text()))
    engine.kill()
    engine.kill()
    until = time.monotonic() + 10
    while _running(child) and time.monotonic() < until:  # a signal takes its time on a busy machine
        time.sleep(0.01)
    assert not _running(child)
    gc.collect()  # what earlier tests left open doesn't count
    fds = len(list(Path("/proc/self/fd").iterdir()))
    other = start()
    assert other.ready() is None
    other.kill()
    assert len(list(Path("/proc/self/fd").iterdir())) == fds


def _running(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("parent", "said"), [(os.getpid(), "goes on"), (1, "")], ids=["there", "gone"])
def test_a_child_whose_parent_died_while_it_started_does_not_go_on(parent: int, said: str) -> None:
    code = "from evals.engine.childside import die_with_parent as d; d(); print('goes on', end='')"
    env = {**child_environment(), PARENT: str(parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0 if said else 1, said)
