"""The target as it is served: embeddings, and the paged graph, fed token by token or draft by draft.

Shared by the replay (`evals.replay`) and the engine (`evals.engine.split`), so that what is measured is what decodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evals.engine.grafts import ROWS, GraftError, page, pick_rows
from evals.engine.paged import Paged, unpinned
from evals.model_dir import EMBEDDINGS

Floats = NDArray[np.float32]


class Embeddings:
    """Token ids to vectors, by the model's own table. Raises RuntimeError where it doesn't compile."""

    def __init__(self, core: Any, file: Path, device: str, properties: Mapping[str, str]) -> None:
        known = {
            k: v for k, v in properties.items() if k in ("INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT")
        }
        self._compiled = core.compile_model(core.read_model(file), device, unpinned(device, known))

    def __call__(self, tokens: Sequence[int]) -> Floats:
        """[tokens, hidden size], a copy."""
        return np.array(self._compiled(np.array([tokens], dtype=np.int64))[0][0])


def load_embeddings(core: Any, model: Path, device: str, properties: Mapping[str, str]) -> Embeddings | None:
    """The embeddings' graph beside a target, None where the target holds its own."""
    file = model / f"{EMBEDDINGS}.xml"
    return Embeddings(core, file, device, properties) if file.exists() else None


class Target:
    """One sequence on the target. hidden: keep the final norm's output of each step, for a head to draft from.

    limit: see `Paged`. Raises GraftError or RuntimeError where the graph can't be had that way.
    """

    def __init__(
        self,
        core: Any,
        graph: Any,
        embed: Embeddings | None,
        device: str,
        properties: Mapping[str, str],
        *,
        hidden: bool = False,
        limit: int | None = None,
    ) -> None:
        page(graph)
        try:
            pick_rows(graph, hidden=hidden)
        except GraftError:
            if hidden:
                raise
        self.paged = Paged(core, graph, device, properties, limit)
        self._embed = embed
        if "inputs_embeds" in self.paged.ports and embed is None:
            raise GraftError(f"the target takes embeddings: expected {EMBEDDINGS}.xml beside it, found none")

    def reset(self) -> None:
        self.paged.reset()

    def feed(self, tokens: Sequence[int], *, last: bool = False, undoable: bool = False) -> Floats:
        """Feed tokens as one step; their logits [tokens, vocabulary], of the last one only where `last`.

        The array is valid until the next step. Raises OutOfRoom.
        """
        rows = np.arange(len(tokens) - 1 if last else 0, len(tokens), dtype=np.int64)
        inputs: dict[str, NDArray[Any]] = {ROWS: rows}
        if self._embed is not None and "inputs_embeds" in self.paged.ports:
            inputs["inputs_embeds"] = self._embed(tokens)
        else:
            inputs["input_ids"] = np.array(tokens, dtype=np.int64)
        self.paged.feed(len(tokens), inputs, undoable=undoable)
        return self.paged.output(0)[-len(rows) :]

    def hidden(self) -> Floats:
        """The final norm's output for each token of the last step, [tokens, hidden size], a copy."""
        return np.array(self.paged.output(1))

    def keep(self, count: int) -> None:
        """Keep only the first `count` tokens of the last step, which was undoable."""
        self.paged.keep(count)
