"""All logits of an answer, step by step as it was decoded: the served graph replayed with caches of our own.

openvino-genai gives one log-probability a token at most. The same graph transformation, cache shapes and step sizes
through openvino.Core show every logit. Only children import this module's engine (`evals.engine.replayer`). A replay
is evidence only where it gives the arm's own tokens; the caller checks that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float64]
"""[tokens fed, vocabulary], in nats up to a constant per row."""

Source = Literal["paged", "stateful"]

_BLOCK = 32
"""Tokens in a block of the CPU's KV cache (openvino-genai)."""

_ROWS = 72
"""Rows of each linear-attention table: one to read, up to K + 1 to write."""


class ReplayError(RuntimeError):
    """This graph can't be replayed that way: the message says why."""


class Replay(Protocol):
    """Feeds tokens and shows their logits."""

    source: Source

    def start(self, prompt: Sequence[int]) -> Logits:
        """Forget everything, feed a prompt in one step; its last row's logits, [1, vocabulary]."""

    def step(self, tokens: Sequence[int], keep: int) -> Logits:
        """Feed tokens as one step of that width and keep the first `keep` (the rest were rejected drafts)."""


class PagedReplay:
    """The graph that continuous batching runs, linear-attention tables (Qwen3.5) included.

    Raises ReplayError where the transformation fails or asks for inputs that aren't known here.
    """

    source: Source = "paged"

    def __init__(
        self,
        model: Path,
        target: str,
        device: str,
        properties: Mapping[str, str],
        *,
        context: int,
        batch: int,
    ) -> None:
        import openvino as ov
        from openvino._offline_transformations import paged_attention_transformation

        self._ov = ov
        core = ov.Core()
        self._embed = _embeddings(core, model, device, properties)
        try:
            graph = core.read_model(model / f"{target}.xml")
            paged_attention_transformation(graph)
            compiled = core.compile_model(graph, device, _unpinned(device, properties))
            self._request = compiled.create_infer_request()
            self._names = {port.get_any_name() for port in compiled.inputs}
            self._tables = [n for n in self._names if "state_table" in n]
            blocks = context // _BLOCK + 2
            for port in compiled.inputs:
                self._allocate(port, blocks)
        except RuntimeError as error:
            raise ReplayError(f"paged-attention replay isn't possible: {error}") from error
        self._batch = batch
        self._past = 0
        self._row = 0

    def start(self, prompt: Sequence[int]) -> Logits:
        self._past = self._row = 0
        for name in self._tables:
            self._request.get_tensor(name).data[...] = 0
        logits = np.empty((0, 0))
        for at in range(0, len(prompt), self._batch):
            logits = self._infer(prompt[at : at + self._batch], [0, 0], 0)
        return logits[-1:]

    def step(self, tokens: Sequence[int], keep: int) -> Logits:
        width = len(tokens)
        if keep == width:  # nothing to undo: the state after the last token is enough
            return self._infer(tokens, [self._row, self._row], 0)
        free = [row for row in range(_ROWS) if row != self._row][:width]
        rows = [self._row, *free]
        before = self._past
        logits = self._infer(tokens, rows, 1)
        self._row = rows[keep]
        self._past = before + keep
        return logits

    def _allocate(self, port: Any, blocks: int) -> None:
        name = port.get_any_name()
        if "cache." in name and name.split("cache.")[0] in ("key_", "value_"):
            first = blocks
        elif "state_table" in name:
            first = _ROWS
        else:
            return
        shape = [first, *(d.get_length() for d in list(port.get_partial_shape())[1:])]
        tensor = self._ov.Tensor(port.get_element_type(), self._ov.Shape(shape))
        self._request.set_tensor(name, tensor)

    def _infer(self, tokens: Sequence[int], rows: Sequence[int], interval: int) -> Logits:
        width, total = len(tokens), self._past + len(tokens)
        used = -(-total // _BLOCK)
        positions = np.arange(self._past, total, dtype=np.int64)
        values: dict[str, Any] = {
            "past_lens": _i32([self._past]),
            "subsequence_begins": _i32([0, width]),
            "block_indices": _i32(range(used)),
            "block_indices_begins": _i32([0, used]),
            "max_context_len": np.array(total, dtype=np.int32),
            "la.block_indices": _i32(rows),
            "la.block_indices_begins": _i32([0, len(rows)]),
            "la.past_lens": _i32([self._past]),
            "la.cache_interval": _i32([interval]),
        }
        if "inputs_embeds" in self._names:
            assert self._embed is not None
            values["inputs_embeds"] = self._embed(tokens)
            values["position_ids"] = np.broadcast_to(positions, (4, width)).copy()
        else:
            values["input_ids"] = np.array(tokens, dtype=np.int64)
            values["position_ids"] = positions
        for name, value in values.items():
            if name in self._names:
                self._request.set_tensor(name, self._ov.Tensor(value))
        self._request.infer()
        self._past = total
        return _rows(self._request.get_output_tensor(0).data)


class StatefulReplay:
    """The graph as exported. Other kernels than the served ones: its margins explain and don't reproduce.

    State can't be rewound, so a step feeds only the tokens that it keeps.
    """

    source: Source = "stateful"

    def __init__(self, model: Path, target: str, device: str, properties: Mapping[str, str]) -> None:
        import openvino as ov

        core = ov.Core()
        self._embed = _embeddings(core, model, device, properties)
        compiled = core.compile_model(
            core.read_model(model / f"{target}.xml"), device, _unpinned(device, properties)
        )
        self._request = compiled.create_infer_request()
        self._names = {port.get_any_name() for port in compiled.inputs}
        self._past = 0

    def start(self, prompt: Sequence[int]) -> Logits:
        self._request.reset_state()
        self._past = 0
        return self._feed(prompt)[-1:]

    def step(self, tokens: Sequence[int], keep: int) -> Logits:
        return self._feed(tokens[:keep])

    def _feed(self, tokens: Sequence[int]) -> Logits:
        past, width = self._past, len(tokens)
        positions = np.arange(past, past + width, dtype=np.int64)
        feed: dict[str, Any] = {
            "attention_mask": np.ones((1, past + width), np.int64),
            "beam_idx": np.zeros(1, np.int32),
            "position_ids": positions[None],
        }
        if "inputs_embeds" in self._names:
            assert self._embed is not None
            feed["inputs_embeds"] = self._embed(tokens)[None]
            feed["position_ids"] = np.broadcast_to(positions, (4, 1, width)).copy()
        else:
            feed["input_ids"] = np.array([tokens], dtype=np.int64)
        self._request.infer({name: value for name, value in feed.items() if name in self._names})
        self._past += width
        return _rows(self._request.get_tensor("logits").data)


def _embeddings(core: Any, model: Path, device: str, properties: Mapping[str, str]) -> Any:
    file = model / "openvino_text_embeddings_model.xml"
    if not file.exists():
        return None
    known = {k: v for k, v in properties.items() if k in ("INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT")}
    compiled = core.compile_model(core.read_model(file), device, _unpinned(device, known))

    def embed(tokens: Sequence[int]) -> NDArray[np.float32]:
        return np.ascontiguousarray(compiled(np.array([tokens], dtype=np.int64))[0][0])

    return embed


def _unpinned(device: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Threads that aren't pinned to cores: as fast, twice as fast on a busy machine, and the same numbers."""
    return {**({"ENABLE_CPU_PINNING": "NO"} if device.upper().startswith("CPU") else {}), **properties}


def _rows(data: NDArray[Any]) -> Logits:
    return data.reshape(-1, data.shape[-1]).astype(np.float64)


def _i32(values: Any) -> NDArray[np.int32]:
    return np.array(list(values), dtype=np.int32)
