"""The threat: a table that lost, doubled or mixed up rows, or that `datasets` reads as something else."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import evals.export_run
from evals.arrow import arrow_type, arrow_value
from evals.export_run import ExportError, export_run
from evals.recording import RunWriter
from evals.records import RecordError
from evals.types import Answer, Arm, CaseGrade, Failure, Grade, Manifest, Margin
from tasks.types import Prompt

TEXTS = {"plain": "one two three", "mtp@1": "one two four"}


def ids(text: str) -> tuple[int, ...]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return tuple(alphabet.index("Ġ" if c == " " else c) for c in text)


def answer(arm: str, prompt: str = "w1", repeat: int = 0, **changes: Any) -> Answer:
    text = TEXTS[arm]
    fields: dict[str, Any] = {
        "arm": arm,
        "task": "csv",
        "prompt": prompt,
        "repeat": repeat,
        "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
        "prompt_tokens": 5,
        "max_new_tokens": 64,
        "ids": ids(text),
        "text": text,
        "steps": (1,) * len(text),
        "finish": "stop",
        "accepted": None if arm == "plain" else 3,
        "drafted": None if arm == "plain" else 4,
    }
    return Answer(**{**fields, **changes})


def grade(arm: str, prompt: str, repeat: int = 0) -> Grade:
    cases = (
        CaseGrade("quoted", "pass"),
        CaseGrade("crlf", "fail", observed=f"{arm} {prompt} {repeat}", expected="x"),
    )
    return Grade(arm=arm, task="csv", prompt=prompt, repeat=repeat, cases=cases, program_sha256="p" * 64)


MARGIN = Margin(
    arm="mtp@1",
    task="csv",
    prompt="w2",
    repeat=0,
    token_index=8,
    rank=2,
    gap=0.06,
    gap_at_verify_width=-0.01,
    movement=None,
    noise={"p50": 0.03, "max": 0.125},
    source="paged",
    reproduced=True,
)


@pytest.fixture
def lay_run(tmp_path: Path) -> Callable[..., Path]:
    def lay(
        answers: Iterator[Answer] | list[Answer], grades: Any = (), margins: Any = (), tokenizer: bool = True
    ) -> Path:
        run = tmp_path / "run"
        common: dict[str, Any] = {"engine": "genai", "device": "CPU", "target_digest": "a" * 64}
        arms = (
            Arm(name="plain", method="plain", k=0, head_digest=None, **common),
            Arm(name="mtp@1", method="mtp", k=1, head_digest="e" * 64, **common),
        )
        manifest = Manifest(
            schema=1,
            tool_version="0.1.0",
            created="2026-11-30T12:00:00Z",
            model="sample",
            model_digest_before="a" * 64,
            arms=arms,
            tasks={"csv": "c" * 64},
            prompts={"csv": ("w1", "w2")},
            repeats={"plain": 2, "mtp@1": 1},
            policy_digest="b" * 64,
        )
        with RunWriter.create(run, manifest) as writer:
            for a in answers:
                writer.answer(a)
            for g in grades:
                writer.grade(g)
            for m in margins:
                writer.margin(m)
        (run / "prompts.json").write_bytes(
            msgspec.json.encode({"csv": [Prompt("w1", "Write <b>"), Prompt("w2", "Do")]})
        )
        if tokenizer:
            alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
            made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
            made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            made.decoder = decoders.ByteLevel()
            (run / "tokenizer").mkdir()
            made.save(str(run / "tokenizer" / "tokenizer.json"))
        return run

    return lay


EVERYTHING = [
    answer("plain"),
    answer("mtp@1"),
    answer("plain", "w2"),
    answer("mtp@1", "w2"),
    answer("plain", repeat=1),
    answer("mtp@1", probe="state", order=9, text=TEXTS["plain"], ids=ids(TEXTS["plain"])),
    answer(
        "plain",
        "w2",
        repeat=1,
        ids=(),
        text="",
        steps=(),
        finish="unknown",
        failure=Failure("crash", "gone", signal=11),
    ),
]
GRADES = [grade("plain", "w1"), grade("mtp@1", "w1"), grade("mtp@1", "w2"), grade("plain", "w1", 1)]


def read(path: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def test_datasets_reads_one_row_an_answer(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    import datasets

    out = tmp_path / "answers.parquet"
    assert export_run(lay_run(EVERYTHING, GRADES, [MARGIN]), out) == 7
    table = datasets.load_dataset("parquet", data_files=str(out), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(table) == 7
    row = table[3]
    assert (row["arm"], row["prompt"], row["text"], row["k"], row["method"]) == (
        "mtp@1",
        "w2",
        "one two four",
        1,
        "mtp",
    )
    assert row["ids"] == list(ids("one two four"))
    assert row["comparison"]["divergence"]["byte_offset"] == 8
    assert row["comparison"]["base"] == "plain"
    assert row["grade"]["cases"][1]["observed"] == "mtp@1 w2 0"
    assert row["margin"]["rank"] == 2
    assert row["margin"]["noise"] == [{"key": "p50", "value": 0.03}, {"key": "max", "value": 0.125}]
    assert (row["accepted"], row["drafted"], row["prompt_text"]) == (3, 4, "Do")
    assert table[0]["accepted"] is None


def test_each_answer_is_joined_with_its_own(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "answers.parquet"
    export_run(lay_run(EVERYTHING, GRADES, [MARGIN]), out)
    rows = read(out)
    assert [r["grade"] and r["grade"]["cases"][1]["observed"] for r in rows] == [
        "plain w1 0",
        "mtp@1 w1 0",
        None,
        "mtp@1 w2 0",
        "plain w1 1",
        None,
        None,
    ]
    assert [r["comparison"] and r["comparison"]["identical"] for r in rows] == [
        None,
        False,
        None,
        False,
        True,
        True,
        None,
    ]
    assert [r["margin"] is not None for r in rows] == [False, False, False, True, False, False, False]
    assert [r["repeat"] for r in rows] == [0, 0, 0, 0, 1, 0, 1]
    assert rows[6]["failure"] == {
        "kind": "crash",
        "message": "gone",
        "signal": 11,
        "exit_code": None,
        "stage": "decode",
    }
    assert rows[5]["probe"] == "state"
    assert rows[0]["head_digest"] is None
    assert rows[1]["head_digest"] == "e" * 64


def test_a_base_that_comes_after_its_answers_is_found(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "answers.parquet"
    probe = answer("plain", probe="state", text="another", ids=ids("another"))
    export_run(lay_run([probe, answer("mtp@1"), answer("plain")]), out)
    assert read(out)[1]["comparison"]["divergence"]["byte_offset"] == 8


def test_an_answer_to_another_prompt_is_not_compared(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "answers.parquet"
    export_run(lay_run([answer("plain"), answer("mtp@1", prompt_sha256="0" * 64)]), out)
    assert read(out)[1]["comparison"] is None


@pytest.mark.parametrize("limit", [{"BATCH_ROWS": 2}, {"BATCH_BYTES": 1}])
def test_batches_lose_and_double_nothing(
    lay_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    from pyarrow import parquet

    run = lay_run(EVERYTHING, GRADES, [MARGIN])
    export_run(run, tmp_path / "one.parquet")
    for name, value in limit.items():
        monkeypatch.setattr(evals.export_run, name, value)
    export_run(run, tmp_path / "many.parquet")
    assert read(tmp_path / "many.parquet") == read(tmp_path / "one.parquet")
    assert parquet.ParquetFile(tmp_path / "one.parquet").num_row_groups == 1
    assert parquet.ParquetFile(tmp_path / "many.parquet").num_row_groups > 1


def test_a_cut_last_line_is_not_a_row(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    run = lay_run(EVERYTHING, GRADES, [MARGIN])
    for name in ("answers.jsonl", "grades.jsonl", "margins.jsonl"):
        with (run / name).open("ab") as f:
            f.write(b'{"arm": "mt')
    assert export_run(run, tmp_path / "answers.parquet") == 7


def test_a_run_without_any_answer_is_a_table_without_rows(
    lay_run: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "answers.parquet"
    assert export_run(lay_run([]), out) == 0
    assert read(out) == []


@pytest.mark.parametrize("name", ["answers.jsonl", "grades.jsonl", "margins.jsonl", "prompts.json"])
def test_a_broken_record_is_named_and_nothing_is_left_behind(
    lay_run: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    run = lay_run(EVERYTHING, GRADES, [MARGIN])
    (run / name).write_bytes(b"[1]\n" + (run / name).read_bytes())
    with pytest.raises(RecordError, match=name):
        export_run(run, tmp_path / "answers.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_number_that_no_column_holds_is_refused(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    run = lay_run([answer("plain", order=1 << 63)])
    with pytest.raises(ExportError, match="doesn't fit its column"):
        export_run(run, tmp_path / "answers.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_file_that_is_there_is_kept(lay_run: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "answers.parquet"
    out.write_text("mine")
    run = lay_run(EVERYTHING)
    with pytest.raises(ExportError, match="found one: name another"):
        export_run(run, out)
    assert out.read_text() == "mine"
    assert export_run(run, out, overwrite=True) == 7


def test_without_pyarrow_it_says_what_to_install(
    lay_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ImportError("No module named 'pyarrow'")
        return real(name, *arguments, **options)

    run = lay_run(EVERYTHING)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExportError, match=r"pip install 'mtp-gate\[data\]'"):
        export_run(run, tmp_path / "answers.parquet")


def test_columns_follow_the_types() -> None:
    import pyarrow as pa

    assert [f.name for f in arrow_type(Answer)] == list(Answer.__struct_fields__)
    grade_type = arrow_type(Grade)
    assert grade_type.field("cases").type.value_type.field("outcome").type == pa.string()
    assert arrow_type(dict[str, int]) == pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))
    assert arrow_value({"a": (1, 2)}) == [{"key": "a", "value": (1, 2)}]
    assert arrow_type(tuple[int, int]) == pa.list_(pa.int64())
    for kind in (int | str, bytes, tuple[int, str]):
        with pytest.raises(TypeError):
            arrow_type(kind)
