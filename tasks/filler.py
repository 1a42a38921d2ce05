"""Filler: text that stands before a task's prompt so that the task is asked at a depth, and that asks nothing itself.

A seeded grammar of our own writes it: reports on made-up places, of which no sentence is a question, an instruction, a
program or a number series. The same seed gives the same text on every machine and version of Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

HEAD: Final = (
    "Notes from an archive, for the record only. They have nothing to do with the request after them.\n\n"
)
TAIL: Final = "\n\nEnd of the notes. The request follows.\n\n---\n\n"

_PARAGRAPH: Final = 6
"""Sentences in a paragraph."""

_PLACES: Final = tuple(
    """Alder Weir, Ashcombe, Barrow Quay, Birkhaven, Coldwater, Cressing, Dunmere, Eastfold, Elm Hollow, Farrow Point,
    Glenside, Harrowgate Mill, Hazel Ford, Inverlea, Juniper Hill, Kestrel Bay, Larkfield, Longmarsh, Marrow Bridge,
    Northolm, Oakhurst, Penwick, Quarry Head, Ravensey, Saltmouth, Sedgeley, Thornby, Upper Wold, Vellmoor, Westering,
    Willow Lock, Yarrowdale""".replace("\n    ", " ").split(", ")
)
_THINGS: Final = tuple(
    """boathouse, brickyard, chapel roof, clock tower, cooperage, customs shed, dairy, drainage pump, ferry landing,
    footbridge, glasshouse, grain store, granary, guildhall, harbour wall, icehouse, kiln, library annex, lighthouse,
    lock gate, market hall, observatory, orchard wall, paper mill, pumping station, railway halt, reading room,
    ropewalk, sawmill, signal box, slipway, smokehouse, stable block, tannery, tollhouse, tram depot, viaduct,
    water tower, weighbridge, windmill""".replace("\n    ", " ").split(", ")
)
_MADE: Final = (
    "repaired",
    "repainted",
    "surveyed",
    "moved",
    "rebuilt",
    "closed",
    "reopened",
    "measured",
    "rented out",
)
_BY: Final = (
    "the parish", "two masons", "a firm from the coast", "the river board", "volunteers", "its former owner",
    "the county", "an apprentice", "the railway", "a cooperative", "the night crew", "the museum",
)  # fmt: skip
_WHEN: Final = (
    "in a wet spring", "after the long frost", "late in the autumn", "before the fair", "at the turn of the year",
    "during the dry summer", "in the week of the regatta", "when the lease ran out", "soon after the flood",
    "while the road was closed", "in the last days of winter", "after the harvest",
)  # fmt: skip
_STUFF: Final = (
    "lime mortar", "larch boards", "slate", "tarred rope", "river gravel", "grey paint", "copper sheet", "old bricks",
    "oak pegs", "cast iron", "reed thatch", "sailcloth", "window glass", "linseed oil",
)  # fmt: skip
_MOOD: Final = (
    "quietly", "with some delay", "at little cost", "without a record of the cost", "to everybody's surprise",
    "with borrowed tools", "by lamplight", "over several weeks", "in a single day", "for the second time",
)  # fmt: skip
_LOOK: Final = (
    "low and broad", "older than it looks", "hidden behind poplars", "visible from the ferry", "painted green",
    "damp on its north side", "warmer than the street", "known for its echo", "built on piles", "half in shade",
)  # fmt: skip

_SENTENCES: Final = (
    "The {thing} at {place} was {made} by {by} {when}.",
    "{When}, {by} took {stuff} and {stuff} from {place} to {place}.",
    "The {thing} at {place} is {look} and {look}.",
    "Work on the {thing} went on {mood}, and the {thing} beside it was {made} {when}.",
    "A visitor to {place} wrote that the {thing} was {look}, and that {by} had {made} the {thing} {mood}.",
    "Between {place} and {place} the path passes a {thing} that was {made} {when}.",
    "The ledger of {place} lists {stuff}, {stuff} and {stuff}, delivered {mood} {when}.",
    "Nobody at {place} remembers why the {thing} was {made} {mood}.",
    "{By} kept the keys of the {thing} at {place}, which is {look}.",
    "The {thing} and the {thing} of {place} share one roof of {stuff}.",
)
_WORDS: Final = {
    "place": _PLACES, "thing": _THINGS, "made": _MADE, "by": _BY, "when": _WHEN, "stuff": _STUFF, "mood": _MOOD,
    "look": _LOOK,
}  # fmt: skip


def filler(tokens: int, seed: str, count: Callable[[str], int]) -> str:
    """Notes of `tokens` tokens or a few less, with the lines that set them apart from the prompt after them.

    count: number of tokens of a text, by the model's own tokenizer. `tokens` below what those lines alone take gives
    those lines alone.
    """
    words: list[str] = []
    total = 0
    for sentence in _sentences(seed):
        words += sentence.split(" ")
        total += count(sentence)
        if total > tokens + tokens // 8:
            break
    low, high = 0, len(words)
    while low < high:  # the most words that fit
        middle = (low + high + 1) // 2
        if count(_block(words[:middle])) <= tokens:
            low = middle
        else:
            high = middle - 1
    return _block(words[:low])


def _block(words: list[str]) -> str:
    text = " ".join(words).replace("\n\n ", "\n\n").strip()
    return f"{HEAD}{text}{TAIL}"


def _sentences(seed: str) -> Iterator[str]:
    drawn = random.Random(seed)  # noqa: S311

    def draw(options: tuple[str, ...]) -> str:
        return options[int(drawn.random() * len(options))]

    number = 0
    while True:
        text = draw(_SENTENCES)
        for name, options in _WORDS.items():
            for place, change in ((f"{{{name}}}", str), (f"{{{name.capitalize()}}}", _capital)):
                while place in text:
                    text = text.replace(place, change(draw(options)), 1)
        number += 1
        yield text if number % _PARAGRAPH else f"{text}\n\n"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
