"""Threat: a comparison that calls two answers equal when a byte or a token differs, places the difference wrongly,
or looks away from tokens that no answer may hold (after the stop, past the budget, control tokens)."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from evals.diff import AFTER, BEFORE, compare
from evals.types import Answer, Failure

STOP, PAD = 2, 3


class Vocabulary:
    """Ids to bytes: letters as themselves, then whatever a test names; ids split characters as byte-level BPE does."""

    stop_ids = frozenset({STOP})
    control_ids = frozenset({STOP, PAD})

    def __init__(self, **names: str) -> None:
        self.names = {int(k[1:]): v for k, v in names.items()}

    def text(self, token: int) -> str:
        return {STOP: "<|im_end|>", PAD: "<|pad|>"}.get(token) or self.names.get(token, chr(token))


def answer(ids, text=None, arm="plain", **fields):
    ids = tuple(ids)
    if text is None:
        text = "".join(chr(t) for t in ids if t > 31)
    fields = {"max_new_tokens": 1000, "finish": "stop", **fields}
    return Answer(
        arm=arm,
        task="t",
        prompt="p",
        repeat=0,
        prompt_sha256="0",
        prompt_tokens=1,
        ids=ids,
        text=text,
        **fields,
    )


def spell(text, stop=True):
    return [ord(c) for c in text] + [STOP] * stop


def test_equal_ids_and_bytes_are_identical():
    c = compare(answer(spell("same")), answer(spell("same"), arm="mtp@1"), Vocabulary())
    assert c.identical and c.divergence is None and c.realignment is None
    assert (c.arm, c.base) == ("mtp@1", "plain")


def test_same_text_from_other_ids_is_not_identical():
    whole = Vocabulary(t200="ab")
    c = compare(answer([97, 98, 99], "abc"), answer([200, 99], "abc"), whole)
    assert not c.identical
    assert c.divergence.token_index == 0 and c.divergence.byte_offset is None
    assert (c.divergence.base_token_text, c.divergence.other_token_text) == ("a", "ab")
    assert c.divergence.base_after == "abc" and c.divergence.other_after == "abc"


def test_same_ids_with_another_text_are_not_identical():
    c = compare(answer(spell("abc")), answer(spell("abc"), text="abx"), Vocabulary())
    assert not c.identical
    assert c.divergence.token_index is None and c.divergence.byte_offset == 2
    assert c.realignment is None and c.stream_matches is False


def test_first_divergence_by_token_and_by_byte_with_both_contexts():
    c = compare(answer(spell("née to be")), answer(spell("née to go")), Vocabulary())
    d = c.divergence
    assert (d.token_index, d.byte_offset) == (7, 8)  # é is one token here and two bytes
    assert (d.base_token, d.other_token) == (ord("b"), ord("g"))
    assert (d.before, d.base_after, d.other_after) == ("née to ", "be", "go")


@pytest.mark.parametrize(("base", "other", "lost"), [("abcdef", "abc", "base"), ("abc", "abcdef", "other")])
def test_one_answer_may_be_the_beginning_of_the_other(base, other, lost):
    c = compare(answer(spell(base, stop=False)), answer(spell(other, stop=False)), Vocabulary())
    assert (c.divergence.token_index, c.divergence.byte_offset) == (3, 3)
    ended = c.divergence.other_token if lost == "base" else c.divergence.base_token
    assert ended is None
    assert {c.divergence.base_after, c.divergence.other_after} == {"def", ""}


def test_empty_answers():
    assert compare(answer([]), answer([]), Vocabulary()).identical
    c = compare(answer([]), answer(spell("a")), Vocabulary())
    assert not c.identical
    assert (c.divergence.token_index, c.divergence.byte_offset, c.divergence.base_token) == (0, 0, None)


def test_divergence_inside_a_character_keeps_the_exact_byte_and_whole_characters_around_it():
    base, other = "x\N{GRINNING FACE}y", "x\N{WINKING FACE}y"
    d = compare(answer(spell(base)), answer(spell(other)), Vocabulary()).divergence
    assert d.byte_offset == 4  # the fourth byte of the emoji's UTF-8 differs
    assert d.before == "x"
    assert (d.base_after, d.other_after) == (base[1:], other[1:])


@pytest.mark.parametrize("far", ["z" * 5000, "\N{GRINNING FACE}" * 5000])
def test_context_is_bounded(far):
    d = compare(answer(spell(far + "a" + far)), answer(spell(far + "b" + far)), Vocabulary()).divergence
    assert len(d.before) == BEFORE
    assert len(d.base_after) == len(d.other_after) == AFTER
    assert len(compare(answer([1]), answer([9]), Vocabulary(t9="z" * 9999)).divergence.other_token_text) < 100


def test_a_lone_surrogate_breaks_nothing():
    d = compare(answer([97], "a\ud83d"), answer([98], "a\ud83e"), Vocabulary()).divergence
    assert d.before == "a"
    (d.before + d.base_after + d.other_after).encode()


def test_tokens_after_the_stop_are_counted_also_when_the_cap_hid_it():
    """sglang#31599 (cases/reports.jsonl, A08)."""

    class Ids(Vocabulary):
        stop_ids = control_ids = frozenset({77})

    plain = answer([31, 32, 33, 77], max_new_tokens=6)
    spec = answer([31, 32, 33, 77, 34, 35], arm="mtp@4", max_new_tokens=6, finish="length", steps=(2, 4))
    c = compare(plain, spec, Ids())
    assert (c.tokens_after_stop, c.over_budget, c.base_finish, c.finish) == (2, 0, "stop", "length")
    assert c.divergence.token_index == 4 and c.divergence.base_token is None


def test_a_final_stop_is_neither_a_leak_nor_a_control_token():
    c = compare(answer(spell("ab")), answer(spell("ab")), Vocabulary())
    assert c.tokens_after_stop == 0 and c.control_tokens == ()


def test_control_tokens_in_the_body_are_placed():
    c = compare(answer(spell("abcd")), answer([97, PAD, 98, PAD, STOP, PAD]), Vocabulary())
    assert c.control_tokens == (1, 3)
    assert c.tokens_after_stop == 1


def test_over_budget_counts_ids():
    assert compare(answer(spell("a")), answer(spell("abcd"), max_new_tokens=3), Vocabulary()).over_budget == 2


def test_a_stream_that_sends_text_twice_does_not_match():
    """TensorRT-LLM#3753 (cases/reports.jsonl, A02): equal ids, another stream."""
    words = Vocabulary(t5="The ", t6="sky ", t7="is ", t8="blue.")
    text = "The sky is blue."
    plain = answer([5, 6, 7, 8], text)
    spec = answer([5, 6, 7, 8], text, streamed="".join(["The ", "The sky is ", "is blue."]))
    c = compare(plain, spec, words)
    assert c.stream_matches is False and c.identical


@pytest.mark.parametrize(
    ("streamed", "finish", "matches"),
    [
        (None, "stop", None),
        ("caf\ufffd", "length", True),
        ("caf", "length", True),
        ("caf", "stop", False),
        ("ca", "length", False),
    ],
)
def test_a_character_cut_by_the_budget_is_no_stream_fault(streamed, finish, matches):
    spec = answer([1, 5], "caf\ufffd", streamed=streamed, finish=finish)
    assert compare(answer([1, 5], "caf\ufffd"), spec, Vocabulary()).stream_matches is matches


def test_two_crashes_are_not_identical():
    crash = Failure(kind="crash", message="signal 11", signal=11)
    c = compare(answer([], failure=crash), answer([], failure=crash), Vocabulary())
    assert not c.identical and c.divergence is None and c.realignment is None


def test_answers_to_different_prompts_are_refused():
    with pytest.raises(ValueError, match="one prompt"):
        compare(answer([1]), Answer("m", "t", "q", 0, "1", 1, 9), Vocabulary())


TEXT = st.text(st.characters(codec="utf-8", min_codepoint=32), max_size=12)


@given(TEXT, TEXT, TEXT)
def test_prefixes_agree_up_to_the_divergence_and_no_further(prefix, a, b):
    base, other = answer(spell(prefix + a)), answer(spell(prefix + b))
    c = compare(base, other, Vocabulary())
    assert c.identical == (a == b)
    if c.divergence is None:
        return
    i, o = c.divergence.token_index, c.divergence.byte_offset
    assert base.ids[:i] == other.ids[:i] and base.ids[i : i + 1] != other.ids[i : i + 1]
    mine, theirs = base.text.encode(), other.text.encode()
    assert mine[:o] == theirs[:o] and mine[o : o + 1] != theirs[o : o + 1]
    assert base.text.startswith(c.divergence.before[-5:] or "") or c.divergence.before in base.text


SAID = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


def streamed(text, *sizes, arm="plain"):
    """An answer over HTTP whose ids nobody told; its stream cut into pieces of these sizes, again and again."""
    cuts, left = [], len(text)
    while left:
        cuts.append(min(left, sizes[len(cuts) % len(sizes)]))
        left -= cuts[-1]
    return answer((), text, arm=arm, ids_from=None, cuts=tuple(cuts))


def test_a_stream_of_several_tokens_at_a_time_is_the_same_text():
    """As servers that speculate send it: what a step accepted comes at once."""
    c = compare(streamed(SAID, 4), streamed(SAID, 9, 2, 5, arm="served"), Vocabulary())
    assert c.identical and c.divergence is None and c.realignment is None


def test_words_lost_from_a_stream_that_is_cut_otherwise_are_found_all_the_same():
    lost = SAID.replace(" five six seven", "").replace(" twelve thirteen", "")
    c = compare(streamed(SAID, 4), streamed(lost, 9, 2, 5, arm="served"), Vocabulary())
    assert [s.text for s in c.realignment.skipped] == [" five six seven", " twelve thirteen"]
    pieces = streamed(SAID, 4)
    fewer = answer(
        (), SAID[:8] + SAID[16:], arm="served", ids_from=None, cuts=(*pieces.cuts[:2], *pieces.cuts[4:])
    )
    assert [s.text for s in compare(pieces, fewer, Vocabulary()).realignment.skipped] == [SAID[8:16]]
