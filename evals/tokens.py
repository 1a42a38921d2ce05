"""Token ids as bytes and as text for people, from a directory's tokenizer files alone (no engine is loaded).

Also which ids are control tokens, which of them end an answer, and where each token's bytes lie in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evals.pieces import Pieces
from evals.types import Arm

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENIZER = 256 << 20
MAX_CONFIG = 4 << 20
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class TokenError(ValueError):
    """Tokenizer files that can't be read; the message says which, what was expected, and what to do."""


class _GenerationConfig(msgspec.Struct, frozen=True):
    eos_token_id: int | list[int] | None = None


class _Content(msgspec.Struct, frozen=True):
    content: str


class _TokenizerConfig(msgspec.Struct, frozen=True):
    eos_token: str | _Content | None = None


class TokenTable:
    """The vocabulary of one model.

    control_ids: ids of special added tokens (never part of an answer's text). stop_ids: ids that end an answer, from
    generation_config.json's eos_token_id and the tokenizer's eos_token.
    """

    control_ids: frozenset[int]
    stop_ids: frozenset[int]

    def __init__(self, tokenizer: Tokenizer, stop_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._added = {int(i): str(token.content) for i, token in added.items()}
        self.stop_ids = frozenset(stop_ids)
        self.control_ids = frozenset(i for i, token in added.items() if token.special) | self.stop_ids
        state = tokenizer.decoder.__getstate__() if tokenizer.decoder is not None else b""
        self._byte_level = b"ByteLevel" in (state if isinstance(state, bytes) else str(state).encode())

    @classmethod
    def load(cls, path: str | Path) -> TokenTable:
        """Read tokenizer.json, tokenizer_config.json and generation_config.json of a model directory.

        Raises TokenError where tokenizer.json is missing, too large or not a tokenizer.
        """
        from tokenizers import Tokenizer

        root = Path(path)
        file = root / "tokenizer.json"
        try:
            if file.stat().st_size > MAX_TOKENIZER:
                raise TokenError(
                    f"{file}: expected at most {MAX_TOKENIZER} bytes, found {file.stat().st_size}."
                )
            tokenizer = Tokenizer.from_file(str(file))
        except FileNotFoundError:
            raise TokenError(
                f"{file}: expected the model's tokenizer, found none. Copy it from the export."
            ) from None
        except TokenError:
            raise
        except Exception as error:  # tokenizers raises bare Exception for anything that it can't parse
            raise TokenError(
                f"{file}: expected a tokenizer, found: {str(error)[:300]}. Export again."
            ) from error
        return cls(tokenizer, _stop_ids(root, tokenizer))

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def counts(self) -> bool:
        """Whether `count` splits a text as the model does. Files that were made of a GGUF file may only show tokens."""
        return self._tokenizer.pre_tokenizer is not None

    def count(self, text: str) -> int:
        """Tokens of a text, by this tokenizer, without any that it would put around it."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; control tokens give their name, ids outside the vocabulary nothing."""
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            return b""
        if self._byte_level:
            table = _byte_of_character()
            return b"".join(table.get(c, c.encode()) for c in token)
        if match := _FALLBACK.match(token):
            return bytes.fromhex(match[1])
        return str(token).replace("▁", " ").encode()

    def text(self, token_id: int) -> str:
        """A token for people: its text, bytes that are no UTF-8 as \\xNN, ids outside the vocabulary as <id N>."""
        data = self.token_bytes(token_id)
        return data.decode("utf-8", "backslashreplace") if data else f"<id {token_id}>"

    def decode(self, ids: Sequence[int], *, skip_control: bool = True) -> str:
        """The text of ids, bytes joined before they are decoded; bad UTF-8 becomes U+FFFD."""
        return b"".join(self._shown(ids, skip_control)).decode("utf-8", "replace")

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids that a text is split into, nothing added. Not always those that a model took to say it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def offsets(self, ids: Sequence[int]) -> list[int]:
        """Where each token's bytes begin in the joined bytes of ids, control tokens left out (they take no bytes)."""
        starts, at = [], 0
        for data in self._shown(ids, True):
            starts.append(at)
            at += len(data)
        return starts

    def _shown(self, ids: Sequence[int], skip_control: bool) -> Iterable[bytes]:
        return (b"" if skip_control and i in self.control_ids else self.token_bytes(i) for i in ids)


def run_tokens(run: Path, arms: Iterable[Arm]) -> TokenTable | Pieces:
    """The tokens of a run's answers, from the tokenizer that it keeps. A run of servers may have none.

    Raises TokenError.
    """
    folder = run / "tokenizer"
    if all(arm.endpoint is not None for arm in arms) and not (folder / "tokenizer.json").exists():
        return Pieces()
    return TokenTable.load(folder)


def _stop_ids(root: Path, tokenizer: Tokenizer) -> set[int]:
    generation = _read(root / "generation_config.json", _GenerationConfig).eos_token_id
    ids = {generation} if isinstance(generation, int) else set(generation or ())
    eos = _read(root / "tokenizer_config.json", _TokenizerConfig).eos_token
    if eos is not None:
        found = tokenizer.token_to_id(eos if isinstance(eos, str) else eos.content)
        if found is not None:
            ids.add(int(found))
    return ids


def _read(file: Path, kind: type[Any]) -> Any:
    if not file.is_file():
        return kind()
    try:
        if file.stat().st_size > MAX_CONFIG:
            raise TokenError(f"{file}: expected at most {MAX_CONFIG} bytes, found {file.stat().st_size}.")
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OSError) as error:
        raise TokenError(f"{file}: cannot be read: {error}. Copy the file from the export.") from error


@cache
def character_of_byte() -> tuple[str, ...]:
    """GPT-2's byte alphabet: printable bytes stand for themselves, the rest for code points from 256 on."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    rest = (b for b in range(256) if b not in set(printable))
    table = {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(rest)}
    return tuple(table[b] for b in range(256))


@cache
def _byte_of_character() -> dict[str, bytes]:
    return {character: bytes([b]) for b, character in enumerate(character_of_byte())}
