"""Degenerate text: an answer whose end repeats one n-gram, and how much of an answer has been said before.

Garbage is identical in both arms (openvino.genai#4467, NaN logits that give token 0 forever), so a plain answer must
be read before "identical" means anything; a loop also makes every draft right, so its acceptance isn't credible.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_PERIOD = 256
"""Longest n-gram, in tokens, that is looked for."""

MIN_COPIES = 4
MIN_REPEATED = 32
"""Tokens beyond the first copy: a ruler of dashes or a short table is no loop."""


class Loop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ids[start:] repeats one n-gram of `period` tokens to the end, `copies` whole times.

    share: part of the answer that lies in the loop, 0 to 1.
    """

    start: int
    period: int
    copies: int
    share: float


def find_loop(ids: Sequence[int], stop_ids: Collection[int] = ()) -> Loop | None:
    """The loop that an answer ends in, or None. A final stop id is left out; degenerate is a loop that the budget
    ended (finish "length"), which the caller knows."""
    import numpy as np

    end = len(ids)
    while end and ids[end - 1] in stop_ids:
        end -= 1
    tail = np.fromiter(ids[:end], dtype=np.int64, count=end)
    longest = min(MAX_PERIOD, end // MIN_COPIES)
    if longest < 1:
        return None
    last_said = np.flatnonzero(tail[end - 1 - longest : end - 1][::-1] == tail[-1]) + 1
    for period in last_said.tolist():  # a loop's last token was said one period before; few periods have that
        same = _periodic_suffix(tail, period)
        copies = same // period + 1
        if copies >= MIN_COPIES and same >= MIN_REPEATED:
            start = end - same - period
            return Loop(start=start, period=period, copies=copies, share=(end - start) / end)
    return None


def _periodic_suffix(ids: NDArray[np.int64], period: int) -> int:
    """How many tokens at the end equal the token `period` places before them."""
    import numpy as np

    window = 1024
    while True:
        part = ids[-(window + period) :]
        different = np.flatnonzero(part[period:] != part[:-period])
        if different.size:
            return int(part.size - period - 1 - different[-1])
        if part.size == ids.size:
            return int(part.size - period)
        window *= 8


def repeated_ngram_share(ids: Sequence[int], n: int = 4) -> float:
    """Share of the n-grams of ids that occurred before in ids, 0 to 1; 0 where there are fewer than n ids.

    n-grams are told apart by a 64-bit mix of their ids (collisions: under 1 in 10^7 for a million n-grams).
    """
    import numpy as np

    if len(ids) < n:
        return 0.0
    values = np.fromiter(ids, dtype=np.uint64, count=len(ids))
    count = len(ids) - n + 1
    mixed = np.zeros(count, dtype=np.uint64)
    for i in range(n):
        mixed ^= values[i : i + count]
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed.sort()
    return float(np.count_nonzero(mixed[1:] == mixed[:-1])) / count
