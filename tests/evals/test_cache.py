"""The threat: an answer of another model, a failure of yesterday, or a damaged file is taken for what was decoded."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import evals.cache
from evals.cache import AnswerKey, Cache, CacheError, GradeKey, sandbox_identity
from evals.types import Answer, Arm, CaseGrade, Failure, SandboxReport

ARM = Arm(
    name="mtp@1",
    method="mtp",
    k=1,
    engine="genai",
    device="CPU",
    target_digest="a" * 64,
    head_digest="b" * 64,
)
ANSWER = Answer(
    arm="mtp@1",
    task="csv",
    prompt="w1",
    repeat=0,
    prompt_sha256="c" * 64,
    prompt_tokens=7,
    max_new_tokens=64,
    ids=(5, 6, 7),
    text="naïve \x00 text",
    steps=(1, 2),
    finish="stop",
    accepted=1,
    drafted=2,
    decode_s=0.25,
)
KEY = AnswerKey.of(ARM, ANSWER)
GRADE_KEY = GradeKey("d" * 64, "e" * 64, "f" * 64)
CASES = (CaseGrade("one", "pass"), CaseGrade("two", "fail", observed="1", expected="2"))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, said: list[str]) -> Cache:
    return Cache(tmp_path / "cache", say=said.append)


def entry(tmp_path: Path) -> Path:
    (path,) = (p for p in (tmp_path / "cache").rglob("*") if p.is_file())
    return path


def test_what_was_kept_is_found_by_another_process_under_its_own_names(cache: Cache, tmp_path: Path) -> None:
    cache.keep_answer(KEY, ANSWER)
    like = msgspec.structs.replace(
        ANSWER, arm="head int4@1", task="mine", prompt="w9", order=4, session=2, ids=(), text=""
    )
    found = Cache(tmp_path / "cache").answer(KEY, like)
    assert found == msgspec.structs.replace(
        ANSWER, arm="head int4@1", task="mine", prompt="w9", order=4, session=2
    )
    cache.keep_grade(GRADE_KEY, CASES)
    assert Cache(tmp_path / "cache").grade(GRADE_KEY) == CASES


def test_an_empty_cache_has_nothing_and_says_nothing(cache: Cache, said: list[str]) -> None:
    assert cache.answer(KEY, ANSWER) is None
    assert cache.grade(GRADE_KEY) is None
    assert said == []


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(KEY, prompt_sha256="0" * 64),
        msgspec.structs.replace(KEY, max_new_tokens=65),
        msgspec.structs.replace(KEY, repeat=1),
        *(
            AnswerKey.of(msgspec.structs.replace(ARM, **change), ANSWER)
            for change in (
                {"k": 2},
                {"target_digest": "0" * 64},
                {"head_digest": "0" * 64},
                {"properties": {"KV_CACHE_PRECISION": "u8"}},
                {"versions": {"openvino": "2027.1"}},
            )
        ),
    ],
)
def test_another_question_is_a_miss(cache: Cache, other: AnswerKey) -> None:
    cache.keep_answer(KEY, ANSWER)
    assert cache.answer(other, ANSWER) is None
    assert cache.answer(KEY, ANSWER) == ANSWER


@pytest.mark.parametrize("field", ["task_digest", "program_sha256", "sandbox_identity"])
def test_another_program_task_or_sandbox_is_a_miss(cache: Cache, field: str) -> None:
    cache.keep_grade(GRADE_KEY, CASES)
    assert cache.grade(msgspec.structs.replace(GRADE_KEY, **{field: "0" * 64})) is None


def test_an_arms_name_is_not_part_of_the_question() -> None:
    assert AnswerKey.of(msgspec.structs.replace(ARM, name="other"), ANSWER) == KEY


def test_another_machine_or_version_is_a_miss(cache: Cache, tmp_path: Path) -> None:
    cache.keep_answer(KEY, ANSWER)
    assert Cache(tmp_path / "cache", context="another processor").answer(KEY, ANSWER) is None


def test_sandboxes_that_differ_have_other_identities() -> None:
    one = SandboxReport(name="bubblewrap", trusted=True, describes={"memory": "256 MiB"})
    others = [
        msgspec.structs.replace(one, name="docker"),
        msgspec.structs.replace(one, describes={"memory": "128 MiB"}),
        msgspec.structs.replace(one, trusted=False),
    ]
    assert len({sandbox_identity(r) for r in (one, *others)}) == 4


@pytest.mark.parametrize(
    "changes", [{"failure": Failure(kind="crash", message="")}, {"probe": "state"}, {"probe": "start"}]
)
def test_failures_and_probes_are_not_kept(cache: Cache, said: list[str], changes: dict[str, Any]) -> None:
    cache.keep_answer(KEY, msgspec.structs.replace(ANSWER, **changes))
    assert cache.answer(KEY, ANSWER) is None
    assert said == []


@pytest.mark.parametrize("cases", [(), (CASES[0], CaseGrade("three", "infra"))])
def test_a_grade_that_the_machine_decided_is_not_kept(
    cache: Cache, said: list[str], cases: tuple[CaseGrade, ...]
) -> None:
    cache.keep_grade(GRADE_KEY, cases)
    assert cache.grade(GRADE_KEY) is None
    assert said == []


def overwrite(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def flip(at: int) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[at] ^= 1
        path.write_bytes(raw)

    return change


@pytest.mark.parametrize(
    "damage",
    [
        overwrite(b""),
        overwrite(b"{}"),
        overwrite(b"\xff\n\xff"),
        flip(0),
        flip(100),
        flip(-10),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_a_damaged_entry_is_a_miss_and_is_said(
    cache: Cache, said: list[str], tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    cache.keep_answer(KEY, ANSWER)
    path = entry(tmp_path)
    damage(path)
    assert cache.answer(KEY, ANSWER) is None
    (sentence,) = said
    assert str(path) in sentence and "made again" in sentence
    if not path.is_dir():
        cache.keep_answer(KEY, ANSWER)
        assert cache.answer(KEY, ANSWER) == ANSWER


def test_a_link_is_not_followed(cache: Cache, said: list[str], tmp_path: Path) -> None:
    cache.keep_answer(KEY, ANSWER)
    path = entry(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.answer(KEY, ANSWER) is None
    assert len(said) == 1
    assert (tmp_path / "elsewhere").exists()


def test_an_entry_under_another_name_is_not_believed(cache: Cache, said: list[str], tmp_path: Path) -> None:
    cache.keep_answer(KEY, ANSWER)
    content = entry(tmp_path).read_bytes()
    entry(tmp_path).unlink()
    other = msgspec.structs.replace(KEY, repeat=1)
    cache.keep_answer(other, msgspec.structs.replace(ANSWER, repeat=1))
    entry(tmp_path).write_bytes(content)
    assert cache.answer(other, ANSWER) is None
    assert "another key" in said[0]


def test_an_answer_to_something_else_under_this_key_is_not_believed(cache: Cache, said: list[str]) -> None:
    cache.keep_answer(KEY, msgspec.structs.replace(ANSWER, prompt_sha256="0" * 64))
    assert cache.answer(KEY, ANSWER) is None
    assert "something else" in said[0]


def test_what_is_too_large_is_not_kept_and_not_read(
    cache: Cache, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.keep_answer(KEY, ANSWER)
    monkeypatch.setattr(evals.cache, "MAX_ENTRY_BYTES", 200)
    assert cache.answer(KEY, ANSWER) is None
    cache.keep_answer(KEY, ANSWER)
    assert "larger than 200 bytes" in said[0] and "isn't kept" in said[1]
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_a_disk_that_fails_stops_nothing(
    cache: Cache, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache.keep_answer(KEY, ANSWER)
    monkeypatch.undo()
    assert "No space left on device" in said[0] and "goes on without" in said[0]
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert cache.answer(KEY, ANSWER) is None


def test_a_path_that_cannot_be_a_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "cache"):
        with pytest.raises(CacheError, match="expected a directory for the cache"):
            Cache(path)


def test_a_cache_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(CacheError, match="chmod o-w"):
        Cache(tmp_path / "cache")


def hammer(path: Path, seed: int, trouble: Any) -> None:
    cache = Cache(path, say=trouble.put)
    for i in range(60):
        key = msgspec.structs.replace(KEY, repeat=(i + seed) % 5)
        answer = msgspec.structs.replace(ANSWER, repeat=key.repeat, text=f"{key.repeat}" * 5000)
        cache.keep_answer(key, answer)
        found = cache.answer(key, answer)
        if found != answer:
            trouble.put(f"found {found!r:.80}")


def test_processes_that_share_a_cache_never_see_half_an_entry(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    trouble = context.SimpleQueue()
    workers = [context.Process(target=hammer, args=(tmp_path / "cache", seed, trouble)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
    assert trouble.empty()
    assert len([p for p in (tmp_path / "cache").rglob("*") if p.is_file()]) == 5
