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

from evals.engine.paged import Mark, unpinned
from evals.engine.target import Target, load_embeddings

Logits = NDArray[np.float64]
"""[tokens fed, vocabulary], in nats up to a constant per row."""

Source = Literal["paged", "stateful"]


class ReplayError(RuntimeError):
    """This graph can't be replayed that way: the message says why."""


class Replay(Protocol):
    """Feeds tokens and shows their logits."""

    source: Source

    def start(self, prompt: Sequence[int]) -> Logits:
        """Forget everything, feed a prompt in one step; its last row's logits, [1, vocabulary]."""

    def step(self, tokens: Sequence[int], keep: int) -> Logits:
        """Feed tokens as one step of that width and keep the first `keep` (the rest were rejected drafts)."""

    def mark(self) -> Any:
        """The place that was reached, to come back to until the next `start`."""

    def go_back(self, mark: Any) -> None:
        """Be as at the mark."""


class PagedReplay:
    """The graph that continuous batching runs, linear-attention tables (Qwen3.5) included.

    batch: longest step of a prompt, in tokens. Raises ReplayError where the transformation fails or asks for inputs
    that aren't known here.
    """

    source: Source = "paged"

    def __init__(
        self, model: Path, target: str, device: str, properties: Mapping[str, str], *, batch: int
    ) -> None:
        import openvino as ov

        core = ov.Core()
        embed = load_embeddings(core, model, device, properties)
        try:
            self._target = Target(core, core.read_model(model / f"{target}.xml"), embed, device, properties)
        except RuntimeError as error:
            raise ReplayError(f"paged-attention replay isn't possible: {error}") from error
        self._batch = batch
        self._fed: tuple[tuple[int, ...], Mark, Logits] | None = None

    def start(self, prompt: Sequence[int]) -> Logits:
        """As `Replay.start`; a prompt fed last time too, which may take minutes at depth, isn't fed again."""
        if self._fed is not None and self._fed[0] == tuple(prompt):
            self._target.paged.go_back(self._fed[1])
            return self._fed[2]
        self._target.reset()
        logits: NDArray[Any] = np.empty((0, 0))
        for at in range(0, len(prompt), self._batch):
            logits = self._target.feed(prompt[at : at + self._batch], last=True)
        self._fed = (tuple(prompt), self._target.paged.mark(), _rows(logits))
        return self._fed[2]

    def step(self, tokens: Sequence[int], keep: int) -> Logits:
        undone = keep < len(tokens)
        logits = _rows(self._target.feed(tokens, undoable=undone))
        if undone:
            self._target.keep(keep)
        return logits

    def mark(self) -> Mark:
        return self._target.paged.mark()

    def go_back(self, mark: Mark) -> None:
        self._target.paged.go_back(mark)


class StatefulReplay:
    """The graph as exported. Other kernels than the served ones: its margins explain and don't reproduce.

    State can't be rewound, so a step feeds only the tokens that it keeps.
    """

    source: Source = "stateful"

    def __init__(self, model: Path, target: str, device: str, properties: Mapping[str, str]) -> None:
        import openvino as ov

        core = ov.Core()
        self._embed = load_embeddings(core, model, device, properties)
        compiled = core.compile_model(
            core.read_model(model / f"{target}.xml"), device, unpinned(device, properties)
        )
        self._request = compiled.create_infer_request()
        self._names = {port.get_any_name() for port in compiled.inputs}
        self._past = 0
        self._steps: list[Sequence[int]] = []

    def start(self, prompt: Sequence[int]) -> Logits:
        self._request.reset_state()
        self._past = 0
        self._steps = []
        return self._feed(prompt)[-1:]

    def step(self, tokens: Sequence[int], keep: int) -> Logits:
        return self._feed(tokens[:keep])

    def mark(self) -> list[Sequence[int]]:
        return list(self._steps)

    def go_back(self, mark: list[Sequence[int]]) -> None:
        """Everything up to the mark is fed again."""
        prompt, *steps = mark
        self.start(prompt)
        for tokens in steps:
            self._feed(tokens)

    def _feed(self, tokens: Sequence[int]) -> Logits:
        self._steps.append(tokens)
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


def _rows(data: NDArray[Any]) -> Logits:
    return data.reshape(-1, data.shape[-1]).astype(np.float64)
