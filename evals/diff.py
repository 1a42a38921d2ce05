"""Two answers to one prompt, compared exactly: where they part, and what each delivered that no answer may hold.

Tokens and bytes are compared apart. The same text can come from other ids (another split of a word), and the same
ids with another text mean that somebody decoded them wrongly: only both equal is identical. Where a side's ids are not
known (a server that tells none), or two tokenisations would be compared, the texts alone decide, byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from evals.align import common_prefix, realign
from evals.loops import repeated_ngram_share
from evals.pieces import Pieces, whole_cuts
from evals.types import Answer, Comparison, Divergence
from tasks.types import turn_of

BEFORE = 120
AFTER = 200
"""Characters of context kept before and after the place where two answers part."""

TOKEN_TEXT = 80


class Tokens(Protocol):
    """What a comparison must know of a tokenizer (`evals.tokens.TokenTable`).

    stop_ids end an answer. control_ids must not stand inside one. text is valid Unicode and never
    raises: an id that the vocabulary lacks has a text of its own.
    """

    @property
    def stop_ids(self) -> frozenset[int]: ...
    @property
    def control_ids(self) -> frozenset[int]: ...
    def text(self, token: int, /) -> str: ...


def compare(base: Answer, other: Answer, tokens: Tokens) -> Comparison:
    """Compare an arm's answer with the base arm's answer to the same prompt.

    A failed answer is never identical to anything. `realignment` is None where the ids are equal or an answer failed.
    Where the ids are equal and the texts aren't, what was delivered isn't the decoded ids: `stream_matches` is False.
    Later turns of a conversation may differ in what was said before: then nothing is diffed (`same_context`).
    Raises ValueError where the two don't answer the same prompt.
    """
    asked = (base.task, base.prompt, base.prompt_sha256)
    same_context = base.prompt_sha256 == other.prompt_sha256
    if asked[:2] != (other.task, other.prompt) or (not same_context and turn_of(base.prompt) == 1):
        found = (other.task, other.prompt, other.prompt_sha256)
        raise ValueError(
            f"expected two answers to one prompt, found {asked} and {found}: compare prompt by prompt"
        )
    if not _tokens_comparable(base, other):
        return _by_text(base, other, tokens)
    return _compared(base, other, tokens)


def _tokens_comparable(base: Answer, other: Answer) -> bool:
    """Whether both sides' ids are known, and from the like of each other: a text that was split again may have other
    ids than those that said it."""
    told = ("engine", "server")
    same = base.ids_from == other.ids_from or (base.ids_from in told and other.ids_from in told)
    return same and base.ids_from is not None


def _by_text(base: Answer, other: Answer, tokens: Tokens) -> Comparison:
    """The comparison by bytes. Where a structure is looked for, pieces stand in for tokens: those of both streams where
    they are cut alike, or words."""
    pieces = Pieces()
    alike = _cut_alike(base, other)
    cut = [
        msgspec.structs.replace(a, ids=pieces.cut(a.text, whole_cuts(a) if alike else ()))
        for a in (base, other)
    ]
    found = _compared(cut[0], cut[1], pieces)
    own = _compared(other, other, tokens) if other.ids_from is not None else None
    divergence = found.divergence
    if divergence is not None:
        divergence = msgspec.structs.replace(
            divergence,
            token_index=None,
            base_token=None,
            other_token=None,
            base_token_text="",
            other_token_text="",
            tokens_known=False,
        )
    return msgspec.structs.replace(
        found,
        divergence=divergence,
        over_budget=own.over_budget if own else _over(other),
        tokens_after_stop=own.tokens_after_stop if own else 0,
        control_tokens=own.control_tokens if own else (),
        stream_matches=own.stream_matches if own else None,
    )


def _cut_alike(base: Answer, other: Answer) -> bool:
    """Whether two streams came in the same pieces up to where their texts part. One that delivers several tokens at a
    time, as speculation does, has other pieces of the same text."""
    one, two = whole_cuts(base), whole_cuts(other)
    if not one or not two or base.text == other.text:
        return False
    same = common_prefix(one, two)
    parts, start = common_prefix(base.text, other.text), sum(one[:same])
    return start + max(one[same : same + 1] + two[same : same + 1], default=0) >= parts


def _over(answer: Answer) -> int:
    """Tokens beyond the budget: by ids where they are exact, else by what is billed or by the pieces of the stream,
    each of which is a token or more."""
    if answer.ids_from in ("engine", "server"):
        return max(0, len(answer.ids) - answer.max_new_tokens)
    return max(
        0, (answer.reported_tokens or 0) - answer.max_new_tokens, (answer.pieces or 0) - answer.max_new_tokens
    )


def _compared(base: Answer, other: Answer, tokens: Tokens) -> Comparison:
    same_ids, same_text = base.ids == other.ids, base.text == other.text
    same_context = base.prompt_sha256 == other.prompt_sha256
    whole = base.failure is None and other.failure is None
    same_delivery = same_text or (base.finish == "length" and _but_a_cut_character(base.text, other.text))
    exact = other.ids_from != "tokenizer"
    body, after_stop = _split_at_stop(other.ids, tokens.stop_ids)
    return Comparison(
        arm=other.arm,
        base=base.arm,
        task=other.task,
        prompt=other.prompt,
        repeat=other.repeat,
        identical=same_ids and same_text and whole,
        divergence=_divergence(base, other, tokens)
        if same_context and not (same_ids and same_text)
        else None,
        realignment=realign(base, other, tokens) if same_context and whole and not same_ids else None,
        tokens_after_stop=after_stop,
        over_budget=_over(other),
        control_tokens=_places(body, tokens.control_ids),
        stream_matches=_stream_matches(other)
        if same_delivery or not (whole and same_ids and exact)
        else False,
        repeated_4gram_share=repeated_ngram_share(other.ids),
        base_finish=base.finish,
        finish=other.finish,
        cut_tokens=_cut(base, other, tokens) if whole and same_context and exact else 0,
        same_context=same_context,
    )


def _cut(base: Answer, other: Answer, tokens: Tokens) -> int:
    """How many of the base's tokens are missing at the other's end, where the base's own stop token shows that stop
    tokens are delivered; 0 where the other isn't the base's beginning."""
    length = len(other.ids)
    if length >= len(base.ids) or base.ids[-1] not in tokens.stop_ids or base.ids[:length] != other.ids:
        return 0
    return 0 if not tokens.stop_ids.isdisjoint(other.ids) else len(base.ids) - length


def _split_at_stop(ids: tuple[int, ...], stop_ids: frozenset[int]) -> tuple[tuple[int, ...], int]:
    """The ids before the first stop id, and how many follow it."""
    places = [ids.index(stop) for stop in stop_ids.intersection(ids)]
    if not places:
        return ids, 0
    return ids[: min(places)], len(ids) - min(places) - 1


def _places(ids: tuple[int, ...], wanted: frozenset[int]) -> tuple[int, ...]:
    """Where the wanted ids stand; almost always nowhere, so that is looked up first."""
    if wanted.isdisjoint(ids):
        return ()
    return tuple(i for i, token in enumerate(ids) if token in wanted)


def _stream_matches(answer: Answer) -> bool | None:
    """Whether the joined stream is the decoded text."""
    if answer.streamed is None:
        return None
    if answer.finish == "length":
        return _but_a_cut_character(answer.streamed, answer.text)
    return answer.streamed == answer.text


def _but_a_cut_character(one: str, other: str) -> bool:
    """Whether two texts are alike but for a character that the budget cut in two: it may be missing or shown as U+FFFD
    at the end of either."""
    return one.rstrip("\ufffd") == other.rstrip("\ufffd")


def _divergence(base: Answer, other: Answer, tokens: Tokens) -> Divergence:
    index = None if base.ids == other.ids else common_prefix(base.ids, other.ids)
    offset = None
    if base.text != other.text:
        base_bytes, other_bytes = _utf8(base.text), _utf8(other.text)
        offset = common_prefix(base_bytes, other_bytes)
        before, base_after = _context(base_bytes, offset)
        _, other_after = _context(other_bytes, offset)
    else:
        assert index is not None
        before = _joined(base.ids[max(0, index - BEFORE) : index], tokens)[-BEFORE:]
        base_after = _joined(base.ids[index : index + AFTER], tokens)[:AFTER]
        other_after = _joined(other.ids[index : index + AFTER], tokens)[:AFTER]
    base_token = _at(base.ids, index)
    other_token = _at(other.ids, index)
    return Divergence(
        token_index=index,
        byte_offset=offset,
        base_token=base_token,
        other_token=other_token,
        base_token_text=_token_text(base_token, tokens),
        other_token_text=_token_text(other_token, tokens),
        before=before,
        base_after=base_after,
        other_after=other_after,
    )


def _context(data: bytes, offset: int) -> tuple[str, str]:
    """Text before and after a byte offset, cut back to the start of the character that the offset lies in."""
    start = offset
    while 0 < start < len(data) and data[start] & 0xC0 == 0x80:
        start -= 1
    before = data[max(0, start - 4 * BEFORE) : start].decode("utf-8", "ignore")[-BEFORE:]
    after = data[start : start + 4 * AFTER].decode("utf-8", "ignore")[:AFTER]
    return before, after


def _utf8(text: str) -> bytes:
    """UTF-8, also of a lone surrogate, which no record could hold but a careless caller could make."""
    return text.encode("utf-8", "surrogatepass")


def _at(ids: Sequence[int], index: int | None) -> int | None:
    return ids[index] if index is not None and index < len(ids) else None


def _token_text(token: int | None, tokens: Tokens) -> str:
    return "" if token is None else tokens.text(token)[:TOKEN_TEXT]


def _joined(ids: Sequence[int], tokens: Tokens) -> str:
    return "".join(tokens.text(t) for t in ids)
