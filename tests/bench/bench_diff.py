"""Time and memory of a comparison of long answers (bars of issue "3."): two answers of 100,000 tokens in about 1 s and
300 MB, unrelated tails included; a million identical tokens in under 0.2 s. Medians of 7.

Seconds are of the processor (one thread, no waiting), so that a busy machine doesn't count. Exits 1 where a bar isn't
met; "about 1 s" is taken as 1.5.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import time

from evals.diff import compare
from evals.types import Answer, Comparison

VOCABULARY = 248_000


class Numbers:
    stop_ids = frozenset({1})
    control_ids = frozenset({1, 2})

    def text(self, token: int, /) -> str:
        return f" {token}"


def answer(ids: list[int]) -> Answer:
    text = " ".join(map(str, ids))
    return Answer("a", "t", "p", 0, "0", 1, 2_000_000, ids=tuple(ids), text=text, streamed=text)


def timed(name: str, base: list[int], other: list[int], bar: float) -> tuple[bool, Comparison]:
    one, two, seconds = answer(base), answer(other), []
    for _ in range(7):
        start = time.process_time()
        found = compare(one, two, Numbers())
        seconds.append(time.process_time() - start)
    median = statistics.median(seconds)
    print(f"{name:42} {median:6.3f} s  (bar {bar} s)  {'ok' if median <= bar else 'MISSED'}")
    return median <= bar, found


def main() -> int:
    rng = random.Random(0)
    compare(answer([5, 6]), answer([5, 7]), Numbers())  # imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    met = []
    long = [rng.randrange(5, VOCABULARY) for _ in range(100_000)]
    cut = list(long)
    for place in range(90_000, 0, -10_000):
        del cut[place : place + 7]
        cut[place - 5_000 : place - 5_000] = cut[place - 5_009 : place - 5_000]
    ok, found = timed("100,000 tokens, 9 skips and 9 repeats", long, cut, 1.5)
    assert found.realignment is not None
    met += [ok, len(found.realignment.skipped) == len(found.realignment.repeated) == 9]
    met += [
        timed(
            "100,000 tokens, unrelated tails",
            long,
            long[:9] + [rng.randrange(5, VOCABULARY) for _ in long],
            1.5,
        )[0]
    ]
    few = [rng.randrange(5, 60) for _ in long]
    met += [
        timed(
            "100,000 tokens of 55, unrelated tails", few, few[:9] + [rng.randrange(5, 60) for _ in long], 1.5
        )[0]
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    met.append(peak <= 300)
    print(
        f"{'peak memory of the process':42} {peak:6.0f} MB ({peak - before:.0f} MB above its imports; bar 300 MB)"
    )
    million = [rng.randrange(5, VOCABULARY) for _ in range(1_000_000)]
    met += [timed("1,000,000 tokens, identical", million, list(million), 0.2)[0]]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
