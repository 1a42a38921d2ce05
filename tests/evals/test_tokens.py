"""The threat: text shown or compared that isn't what the ids say, a stop id that isn't known as one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from evals.tokens import TokenError, TokenTable


@pytest.fixture
def byte_level(tmp_path: Path) -> Path:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|other|>"])
    tokenizer.add_tokens(["<think>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_bytes_round_trip_through_the_byte_alphabet(byte_level: Path) -> None:
    text = 'naïve "x"\r\n\ttab ✓ 語 \U0001f600'
    table = TokenTable.load(byte_level)
    ids = Tokenizer.from_file(str(byte_level / "tokenizer.json")).encode(text).ids
    assert [table.token_bytes(i) for i in ids] == [bytes([b]) for b in text.encode()]
    assert table.decode(ids) == text
    assert table.offsets(ids) == list(range(len(text.encode())))


def test_half_a_character_is_shown_as_bytes(byte_level: Path) -> None:
    table = TokenTable.load(byte_level)
    half = Tokenizer.from_file(str(byte_level / "tokenizer.json")).encode("é").ids[0]
    assert table.text(half) == "\\xc3"
    assert table.decode([half]) == "\ufffd"


def test_control_tokens_are_the_special_ones_and_take_no_bytes(byte_level: Path) -> None:
    table = TokenTable.load(byte_level)
    assert table.control_ids == {256, 257}
    assert table.text(257) == "<|other|>"
    ids = [257, 258, 256]
    assert table.decode(ids) == "<think>"
    assert table.decode(ids, skip_control=False) == "<|other|><think><|end|>"
    assert table.offsets(ids) == [0, 0, 7]


def test_ids_outside_the_vocabulary_are_named(byte_level: Path) -> None:
    table = TokenTable.load(byte_level)
    assert len(table) == 259
    assert (table.text(9999), table.token_bytes(9999), table.text(-1)) == ("<id 9999>", b"", "<id -1>")


@pytest.mark.parametrize(
    ("generation", "tokenizer", "expected"),
    [
        ({"eos_token_id": 257}, {"eos_token": "<|end|>"}, {256, 257}),
        ({"eos_token_id": [257, 258]}, {"eos_token": {"content": "<|end|>"}}, {256, 257, 258}),
        (None, {"eos_token": "<|end|>"}, {256}),
        ({}, {"eos_token": None}, set()),
    ],
)
def test_stop_ids_come_from_both_files(
    generation: object, tokenizer: object, expected: set[int], byte_level: Path
) -> None:
    if generation is not None:
        (byte_level / "generation_config.json").write_text(json.dumps(generation))
    (byte_level / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    table = TokenTable.load(byte_level)
    assert table.stop_ids == expected
    assert table.stop_ids <= table.control_ids


def test_byte_fallback_vocabularies(tmp_path: Path) -> None:
    vocab = {"▁Hello": 0, "▁": 1, "<0xC3>": 2, "<0xA9>": 3, "<unk>": 4}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    table = TokenTable.load(tmp_path)
    assert table.decode([0, 1, 2, 3]) == " Hello é"
    assert table.text(2) == "\\xc3"


@pytest.mark.parametrize("fault", ["missing", "text", "generation", "huge"])
def test_files_that_cannot_be_read_are_named(fault: str, byte_level: Path) -> None:
    file = byte_level / ("generation_config.json" if fault in ("generation", "huge") else "tokenizer.json")
    if fault == "missing":
        file.unlink()
    elif fault == "huge":
        with file.open("wb") as handle:
            handle.truncate((4 << 20) + 1)
    else:
        file.write_text('{"eos_token_id": "x"}')
    with pytest.raises(TokenError, match=file.name + (".*at most" if fault == "huge" else "")):
        TokenTable.load(byte_level)


def test_the_sample_decodes_as_its_own_tokenizer_does(sample_dir: Path, tmp_path: Path) -> None:
    table = TokenTable.load(sample_dir)
    shutil.copy(sample_dir / "tokenizer.json", tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = 'def parse(text):\n    return text.split("\\r\\n")  # é\n'
    assert table.decode(tokenizer.encode(text).ids) == text
    assert len(table.stop_ids) >= 1
    assert table.stop_ids <= table.control_ids
