"""Threat: lost decoder state (skipped or doubled tokens) that passes as a rewording; and, worse, an honest rewording
that is called lost state, because a gate that cries wolf is switched off."""

import random
import re
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

import tasks
from evals.align import common_prefix, realign
from evals.types import Answer

STOP = 0
GOLD = sorted((Path(tasks.__file__).parent / "builtin").glob("*/gold/*.py"))


class Words:
    """Gives each word, mark or line's indent an id as it comes: a text's tokens are near a model's own."""

    def __init__(self):
        self.ids, self.words = {}, ["<|im_end|>"]

    def encode(self, text):
        out = []
        for word in re.findall(r"\n +|\w+|\s|[^\w\s]", text):
            if word not in self.ids:
                self.ids[word] = len(self.words)
                self.words.append(word)
            out.append(self.ids[word])
        return [*out, STOP]

    def text(self, token):
        return self.words[token]


class Numbers:
    def text(self, token):
        return f"<{token}>"


def answer(ids, finish="stop"):
    return Answer("a", "t", "p", 0, "0", 1, 10**6, ids=tuple(ids), finish=finish)


def align(base, other, tokens=None, base_finish="stop", finish="stop"):
    return realign(answer(base, base_finish), answer(other, finish), tokens or Numbers())


def places(spans):
    return [(s.start, s.stop) for s in spans]


def test_numbers_lost_from_a_count():
    """mlx-lm#846 (cases/reports.jsonl, A01): two spans dropped, the first at token 2."""
    plain = [49, 10, 50, 10, 51, 10, 52, 10, 53, 10, 54, 10, 2]
    found = align(plain, [49, 10, 51, 10, 52, 10, 54, 10, 2])
    assert places(found.skipped) == [(2, 4), (8, 10)] and found.repeated == ()
    assert found.replaced == 0 and found.tail == 3
    assert found.realigned == pytest.approx(7 / 11)


def test_a_doubled_token_and_a_unit_said_three_times_more():
    base = list(range(100, 140))
    found = align(base, base[:10] + base[9:20] + base[17:20] * 3 + base[20:])
    assert places(found.repeated) == [(10, 11), (21, 30)]
    assert [s.times for s in found.repeated] == [1, 3]
    assert found.repeated[0].text == "<109>" and found.skipped == ()


@pytest.mark.parametrize(("size", "found"), [(30, True), (16, True), (15, False)])
def test_a_long_span_said_again_far_from_its_original(size, found):
    base = list(range(100, 220))
    again = align(base, base[:80] + base[20 : 20 + size] + base[80:])
    assert places(again.repeated) == ([(80, 80 + size)] if found else [])
    assert again.skipped == ()
    other = [*range(900, 900 + size - 1), 20]
    assert align(base, base[:80] + other + base[80:]).repeated == ()


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_injected_skips_and_repeats_are_found_and_named(seed, count):
    """Tokens from a small vocabulary, so that a cut can be explained in more than one place."""
    rng = random.Random(seed)
    base = [rng.randrange(12) for _ in range(200)]
    other, skip, cuts = list(base), rng.random() < 0.5, sorted(rng.sample(range(1, 9), count), reverse=True)
    for cut in cuts:
        start, size = cut * 20, rng.randint(1, 8)
        if skip:
            del other[start : start + size]
        else:
            other[start:start] = other[start - size : start]
    if other == base:
        return
    found = align(base, other)
    spans, none = (found.skipped, found.repeated) if skip else (found.repeated, found.skipped)
    assert none == ()
    if spans:  # found by another path through equal tokens, it is left alone: a miss, never a false alarm
        assert sum(s.stop - s.start for s in spans) == abs(len(base) - len(other))
        assert spans[0].start == common_prefix(base, other)


def test_injected_faults_are_rarely_missed_where_tokens_vary():
    missed = 0
    for seed in range(300):
        rng = random.Random(seed)
        base = [rng.randrange(400) for _ in range(150)]
        start, size = rng.randrange(5, 120), rng.randint(1, 10)
        cut = base[:start] + base[start + size :]
        missed += cut != base and not align(base, cut).skipped
        again = base[:start] + base[max(0, start - size) :]
        missed += not align(base, again).repeated
    assert missed == 0


def test_budget_may_cut_what_the_spans_moved():
    base = list(range(100, 200))
    skip = base[:20] + base[25:] + [900, 901, 902, 903, 904]
    assert places(align(base, skip, base_finish="length", finish="length").skipped) == [(20, 25)]
    assert align(base, skip).skipped == ()  # neither was cut: the other goes on by itself
    more = [*skip, 905, 906]
    assert align(base, more, base_finish="length").skipped == ()  # more than the span can explain
    again = base[:20] + base[15:20] + base[20:95]
    assert places(align(base, again, finish="length").repeated) == [(20, 25)]


@pytest.mark.parametrize("path", GOLD, ids=lambda p: p.parts[-3])
def test_honest_programs_that_name_or_write_things_otherwise(path):
    """What a near-tie does: names, operators, quotes or a statement become others, and the tail is shared."""
    source, seen = path.read_text(), 0
    names = sorted(set(re.findall(r"\b[a-z_]{2,}\b", source)))
    rng = random.Random(7)
    for _ in range(150):
        words = Words()
        text = source
        for name in rng.sample(names, rng.randint(1, 3)):
            text = re.sub(
                rf"\b{name}\b", rng.choice([name + "_", "value", "item", f"the_{name}", f"{name}s[0]"]), text
            )
        lines = text.splitlines(keepends=True)
        if rng.random() < 0.5:  # a line is written in another way and the rest stays
            i = rng.randrange(len(lines))
            lines[i] = lines[i].replace(lines[i].strip(), "total = sum(x for x in row)")
        base, other = words.encode(source), words.encode("".join(lines))
        if base == other:
            continue
        seen += 1
        found = align(base, other, words)
        assert found.skipped == found.repeated == ()
    assert seen > 100


HONEST = [
    ("The keeper climbed the stairs. He lit the lamp.", "The keeper went up the stairs. He lit the lamp."),
    ("He was old and tired, and he slept.", "He was old, and he slept well."),
    ("return fields", "fields.append(field)\n    return fields"),
    ("if c == '\"': quoted = not quoted", "if c == quote: quoted = not quoted"),
    ("one two three four five six", "one three two four five six"),
]


@pytest.mark.parametrize(("base", "other"), HONEST)
def test_honest_texts(base, other):
    words = Words()
    found = align(words.encode(base), words.encode(other), words)
    assert found.skipped == found.repeated == ()


def test_an_honestly_dropped_sentence_is_a_fact_with_one_span_and_no_more():
    """It can't be told from lost state by structure, and this file says so: a rule asks for a gap or more spans."""
    words = Words()
    base = words.encode("The sea was calm. The gulls slept. The keeper lit the lamp and sat down to write.")
    other = words.encode("The sea was calm. The keeper lit the lamp and sat down to write.")
    found = align(base, other, words)
    assert len(found.skipped) == 1 and found.replaced == 0
    assert found.skipped[0].text.strip() == "gulls slept. The"  # begins at the first divergence


def test_a_drop_beside_a_replaced_token_is_a_rewording():
    base = list(range(100, 160))
    assert align(base, [*base[:10], *base[14:30], 900, *base[31:]]).skipped == ()
    assert align(base, [*base[:10], *base[9:30], 900, *base[31:]]).repeated == ()
    assert (
        align(base, [*base[:10], *base[14:30], 900, 901, *base[30:]]).skipped == ()
    )  # a new phrase is no repeat


def test_stretches_of_a_token_or_two_are_chance():
    base = list(range(100, 160))
    assert align(base, base[:40] + base[42:44] + base[46:]).skipped == ()
    assert align(base, base[:40] + base[42:58]).skipped == ()
    assert len(align(base, base[:40] + base[42:45] + base[47:]).skipped) == 2


def test_most_of_the_rest_must_re_align():
    base = list(range(100, 160))
    assert align(base, base[:5] + base[50:]).skipped == ()


def test_unrelated_tails_give_no_span_and_little_in_common():
    rng = random.Random(1)
    base, other = ([5, *(rng.randrange(50) for _ in range(3000))] for _ in range(2))
    found = align(base, other)
    assert found.skipped == found.repeated == () and found.replaced > 0 and found.realigned < 0.6


def test_a_search_that_was_cut_off_says_so():
    base = list(range(100, 400))
    found = realign(answer(base), answer(base[:10] + base[12:]), Numbers(), limit=50)
    assert not found.bounded and found.skipped == () and found.tail == 0
    both = base[:10] + base[12:30] + base[28:]  # in step again where the search ends
    assert len(align(base, both).skipped) == len(align(base, both).repeated) == 1
    assert realign(answer(base), answer(both), Numbers(), limit=50).skipped == ()


@pytest.mark.parametrize(
    ("base", "other"), [([], [1, 2]), ([1, 2], []), ([1, 2, 3], [1, 2]), ([1, 2], [1, 2, 3])]
)
def test_one_side_ends(base, other):
    found = align(base, other)
    assert found.skipped == found.repeated == () and found.realigned == 0.0


IDS = st.lists(st.integers(0, 5), max_size=30)


@given(IDS, IDS)
def test_facts_hold_for_any_two_answers(base, other):
    found = align(base, other)
    assert 0 <= found.realigned <= 1 and found.replaced <= len(base)
    rebuilt = list(base)
    for span in reversed(found.skipped):
        del rebuilt[span.start : span.stop]
    kept = list(other)
    for span in reversed(found.repeated):
        del kept[span.start : span.stop]
    if found.skipped or found.repeated:
        assert rebuilt == kept  # the spans explain every difference
