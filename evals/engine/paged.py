"""One sequence on a graph transformed for paged attention: its caches, and how a rejected draft is undone at no cost.

Attention forgets tokens by counting fewer of them. Linear attention (Qwen3.5) keeps a table of states: a step that may
be undone writes the state after every token to a row of its own, and the row to go on from is chosen afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from evals.engine.grafts import GraftError

Array = NDArray[Any]

_HEADROOM = 64 << 20
"""Bytes of memory that are left free when caches grow."""


class OutOfRoom(RuntimeError):
    """The sequence needs more cache than settings or memory allow: says how much, and what to change."""


class Mark(NamedTuple):
    """A place in a sequence to come back to. over: cache or table → row, and what stood there, which later steps write
    over."""

    past: int
    row: int
    over: dict[str, tuple[int, Array]]


class Paged:
    """A compiled paged graph with caches that grow with the sequence.

    limit: most tokens of a sequence, None for no limit. past: tokens that the sequence has. Raises GraftError for a
    device whose caches aren't shaped as the CPU's, and RuntimeError where it doesn't compile.
    """

    def __init__(
        self, core: Any, graph: Any, device: str, properties: Mapping[str, str], limit: int | None = None
    ) -> None:
        import openvino as ov

        self._ov = ov
        compiled = core.compile_model(graph, device, unpinned(device, properties))
        self._request = compiled.create_infer_request()
        self.ports = {port.get_any_name(): port for port in compiled.inputs}
        self._caches = [n for n in self.ports if n.startswith(("key_cache.", "value_cache."))]
        self._tables = [n for n in self.ports if "state_table" in n]
        self._inputs: dict[str, Array] = {}
        flat = "position_ids" not in self.ports or self._rank("position_ids") == 1
        self._position_rows = None if flat else self._side("position_ids", 0)
        self.block = min((self._side(n, 2) for n in self._caches), default=1)
        self._held = {"blocks": 0, "rows": 0}
        self.limit = limit
        self.past = 0
        self._row = 0
        self._fed: tuple[int, list[int]] = (0, [])

    @property
    def bytes_per_token(self) -> float:
        """Bytes of key-value cache that a token takes."""
        return sum(self._bytes(name, 1) for name in self._caches) / self.block

    def reset(self) -> None:
        """Forget the sequence; the caches keep their size."""
        self.past = self._row = 0
        for name in self._tables if self._held["rows"] else ():
            self._request.get_tensor(name).data[...] = 0

    def feed(self, width: int, inputs: Mapping[str, Array], *, undoable: bool = False) -> None:
        """Feed the sequence's next tokens, as one step. undoable: `keep` may take any number of them afterwards.

        inputs: what the graph takes beside positions and caches; names that it doesn't take are passed over.
        Raises OutOfRoom.
        """
        total = self.past + width
        self._make_room(total, width + 1 if undoable else 1)
        free = [row for row in range(width + 1) if row != self._row][:width] if undoable else [self._row]
        rows = [self._row, *free]
        used = -(-total // self.block)
        positions = np.arange(self.past, total, dtype=np.int64)
        if self._position_rows is not None:
            positions = np.broadcast_to(positions, (self._position_rows, width))
        values: dict[str, Array] = {
            **inputs,
            "position_ids": positions,
            "past_lens": _i32([self.past]),
            "subsequence_begins": _i32([0, width]),
            "block_indices": _i32(range(used)),
            "block_indices_begins": _i32([0, used]),
            "max_context_len": np.array(total, dtype=np.int32),
            "la.block_indices": _i32(rows),
            "la.block_indices_begins": _i32([0, len(rows)]),
            "la.past_lens": _i32([self.past]),
            "la.cache_interval": _i32([int(undoable)]),
        }
        for name, value in values.items():
            if name in self.ports:
                self._put(name, value)
        self._request.infer()
        self._fed = (self.past, rows)
        self.past = total

    def keep(self, count: int) -> None:
        """Keep only the first `count` tokens of the last step, which was undoable."""
        before, rows = self._fed
        self._row = rows[count]
        self.past = before + count

    def mark(self) -> Mark:
        """The place that the sequence has reached: of its KV cache only the block that isn't full can change."""
        rows = dict.fromkeys(self._caches, self.past // self.block) | dict.fromkeys(self._tables, self._row)
        views = {name: (row, self._rows_of(name)) for name, row in rows.items()}
        return Mark(
            self.past,
            self._row,
            {name: (row, view[row].copy()) for name, (row, view) in views.items() if row < len(view)},
        )

    def go_back(self, mark: Mark) -> None:
        """Be as the sequence was at the mark, bit for bit, as long as it was not reset or rewound before it since."""
        for name, (row, content) in mark.over.items():
            self._rows_of(name)[row] = content
        self.past, self._row = mark.past, mark.row

    def rewind(self, past: int) -> None:
        """Go back to a number of tokens; for graphs without linear attention."""
        self.past = past

    def output(self, index: int) -> Array:
        """An output of the last step as rows [tokens, side], valid until the next one."""
        data: Array = self._request.get_output_tensor(index).data
        return data.reshape(-1, data.shape[-1])

    def _put(self, name: str, value: Array) -> None:
        """Set an input: in the tensor that it has where the shape is the same, which costs the runtime nothing."""
        held = self._inputs.get(name)
        if held is None or held.shape != value.shape:
            tensor = self._ov.Tensor(np.array(value, order="C"))
            self._request.set_tensor(name, tensor)
            held = self._inputs[name] = tensor.data
        held[...] = value

    def _make_room(self, tokens: int, rows: int) -> None:
        if self.limit is not None and tokens > self.limit:
            raise OutOfRoom(
                f"the sequence reached {tokens} tokens, its key-value cache holds {self.limit}: raise --scheduler "
                "cache_size (GiB) or num_kv_blocks"
            )
        blocks = -(-tokens // self.block)
        if blocks > self._held["blocks"]:
            most = blocks if self.limit is None else -(-self.limit // self.block)
            self._grow(self._caches, "blocks", max(blocks, min(2 * blocks, most)), tokens)
        if rows > self._held["rows"] and self._tables:
            self._grow(self._tables, "rows", rows, tokens)

    def _grow(self, names: Iterable[str], what: str, count: int, tokens: int) -> None:
        """Larger tensors with the old ones' content; new linear-attention states are zero."""
        names = tuple(names)
        needed = sum(self._bytes(name, count) for name in names)
        free = psutil.virtual_memory().available
        if needed + _HEADROOM > free:
            raise OutOfRoom(
                f"the caches for {tokens} tokens need {needed >> 20} MiB of memory, {free >> 20} MiB are free: use "
                "shorter prompts or budgets, a smaller KV_CACHE_PRECISION, or a machine with more memory"
            )
        for name in names:
            port = self.ports[name]
            shape = [count, *(self._side(name, at) for at in range(1, self._rank(name)))]
            tensor = self._ov.Tensor(port.get_element_type(), self._ov.Shape(shape))
            new = tensor.data.reshape(-1)  # packed bytes where an element is smaller than one
            old = self._request.get_tensor(name).data.reshape(-1) if self._held[what] else new[:0]
            new[: len(old)] = old
            if what == "rows":
                new[len(old) :] = 0
            self._request.set_tensor(name, tensor)
        self._held[what] = count

    def _rows_of(self, name: str) -> Array:
        """A view of a cache's blocks or a table's states, [rows, …]; a packed type (u4) shows its bytes."""
        tensor = self._request.get_tensor(name)
        view: Array = tensor.data.reshape(tensor.shape[0], -1)
        return view

    def _rank(self, name: str) -> int:
        return int(self.ports[name].get_partial_shape().rank.get_length())

    def _side(self, name: str, at: int) -> int:
        side = self.ports[name].get_partial_shape()[at]
        if side.is_dynamic:
            raise GraftError(
                f"the device leaves the shape of {name} open; this engine knows the CPU's shapes only"
            )
        return int(side.get_length())

    def _bytes(self, name: str, count: int) -> int:
        sides = (self._side(name, at) for at in range(1, self._rank(name)))
        bits = self.ports[name].get_element_type().bitwidth
        return int(count * np.prod(list(sides)) * bits) // 8


def unpinned(device: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Threads that aren't pinned to cores: as fast, twice as fast on a busy machine, and the same numbers."""
    return {**({"ENABLE_CPU_PINNING": "NO"} if device.upper().startswith("CPU") else {}), **properties}


def _i32(values: Iterable[int]) -> Array:
    return np.array(list(values), dtype=np.int32)
