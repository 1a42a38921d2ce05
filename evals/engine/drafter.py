"""An MTP head that drafts: a decoder layer, the lm_head, and the layer's own key-value cache.

The layer pairs the target's hidden state at a token with the embedding of the next one, and predicts the one after it.
Positions count pairs from 0. From the second draft on, the layer's own output stands for the target's hidden state;
where the target rejects the token, the pair is forgotten, where it accepts it, the pair stays as it is. Both as
openvino-genai does it, so that acceptance means the same (feeding such pairs again with the target's states accepted
52.6 % of drafts in place of 48 on the sample at K = 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evals.engine.grafts import GraftError, page
from evals.engine.paged import Paged, unpinned
from evals.engine.target import Embeddings, Floats
from evals.headbuild.lm_head import cut_lm_head

_EMBEDS = ("inputs_embeds", "input_embeds")
"""What optimum-intel and what arcint call the embeddings' input."""


class Layer(Protocol):
    """A head's decoder layer with its cache."""

    bytes_per_token: float

    def feed(self, hidden: Floats, embeds: Floats) -> Floats:
        """Feed pairs [pairs, hidden size]; the layer's output for each."""

    def rewind(self, pairs: int) -> None:
        """Keep only the first pairs."""


class PagedLayer:
    """The layer as openvino-genai runs it: forgetting costs nothing. Raises GraftError where it can't be paged."""

    def __init__(
        self, core: Any, graph: Any, device: str, properties: Mapping[str, str], limit: int | None = None
    ) -> None:
        page(graph)
        self._paged = Paged(core, graph, device, properties, limit)
        self._embeds = _one_of(self._paged.ports, _EMBEDS)
        self.bytes_per_token = self._paged.bytes_per_token

    def feed(self, hidden: Floats, embeds: Floats) -> Floats:
        self._paged.feed(len(hidden), {"hidden_states": hidden[:, None], self._embeds: embeds})
        return np.array(self._paged.output(0))

    def rewind(self, pairs: int) -> None:
        self._paged.rewind(pairs)


class StatefulLayer:
    """A layer that can't be paged: its mask comes from outside, as numbers (published heads of the split layout).

    Its cache is read, cut and written back to forget, which costs time in proportion to the context.
    """

    def __init__(self, core: Any, graph: Any, device: str, properties: Mapping[str, str]) -> None:
        compiled = core.compile_model(graph, device, unpinned(device, properties))
        self._request = compiled.create_infer_request()
        self._ports = {port.get_any_name(): port for port in compiled.inputs}
        self._embeds = _one_of(self._ports, _EMBEDS)
        self._past = 0
        sides = (list(s.state.shape) for s in self._request.query_state())
        self.bytes_per_token = float(sum(4 * int(np.prod([side[1], side[3]])) for side in sides))

    def feed(self, hidden: Floats, embeds: Floats) -> Floats:
        count = len(hidden)
        total = self._past + count
        values: dict[str, NDArray[Any]] = {
            "hidden_states": hidden[None],
            self._embeds: embeds[None],
            "position_ids": np.arange(self._past, total)[None],
            "beam_idx": np.zeros(1),
        }
        if "attention_mask" in self._ports:
            values["attention_mask"] = self._mask(count, total)
        feed = {
            name: value.astype(self._ports[name].get_element_type().to_dtype())
            for name, value in values.items()
            if name in self._ports
        }
        self._request.infer(feed)
        self._past = total
        data: Floats = self._request.get_output_tensor(0).data
        return np.array(data.reshape(-1, data.shape[-1]))

    def rewind(self, pairs: int) -> None:
        import openvino as ov

        if pairs == self._past:
            return
        for state in self._request.query_state():
            if pairs:
                state.state = ov.Tensor(np.ascontiguousarray(state.state.data[:, :, :pairs]))
            else:
                state.reset()
        self._past = pairs

    def _mask(self, count: int, total: int) -> NDArray[Any]:
        """Ones, or 0 and -inf [1, 1, pairs, context] where the graph builds no causal mask of its own."""
        if self._ports["attention_mask"].get_partial_shape().rank.get_length() == 2:
            return np.ones((1, total))
        later = np.arange(total)[None] > np.arange(self._past, total)[:, None]
        return np.where(later, -np.inf, 0.0)[None, None]


class Drafter:
    """A head at work. lm_head: a compiled graph. batch: most pairs fed at once."""

    def __init__(self, layer: Layer, lm_head: Any, embed: Embeddings, *, batch: int) -> None:
        self._layer, self._lm_head, self._embed, self._batch = layer, lm_head, embed, batch
        self._pairs = self._guessed = 0

    def reset(self) -> None:
        self._pairs = self._guessed = 0
        self._layer.rewind(0)

    def draft(self, hidden: Floats, tokens: Sequence[int], k: int) -> list[int]:
        """Take verified pairs (the target's hidden state [pairs, hidden size], the token after it); draft k tokens."""
        held = min(self._guessed, len(tokens) - 1)
        self._layer.rewind(self._pairs + held)
        out = np.empty((0, 0), np.float32)
        for at in range(held, len(tokens), self._batch):
            piece = slice(at, at + self._batch)
            out = self._layer.feed(hidden[piece], self._embed(tokens[piece]))
        self._pairs += len(tokens)
        drafted = [self._token(out[-1:])]
        while len(drafted) < k:
            out = self._layer.feed(out[-1:], self._embed(drafted[-1:]))
            drafted.append(self._token(out))
        self._guessed = k - 1
        return drafted

    def _token(self, state: Floats) -> int:
        return int(np.argmax(self._lm_head(state[None])[0].reshape(-1)))


def load_layer(
    core: Any, file: Path, device: str, properties: Mapping[str, str], limit: int | None = None
) -> Layer:
    """The layer of a head, paged where that can be. Raises GraftError or RuntimeError where it can't be had at all."""
    graph = core.read_model(file)
    masks = [port for port in graph.inputs if "attention_mask" in port.get_names()]
    if masks and masks[0].get_partial_shape().rank.get_length() == 2:
        try:
            return PagedLayer(core, graph, device, properties, limit)
        except GraftError:
            graph = core.read_model(file)
    return StatefulLayer(core, graph, device, properties)


def load_lm_head(
    core: Any, file: Path | None, target: Path, device: str, properties: Mapping[str, str]
) -> Any:
    """The head's lm_head, compiled: a graph of its own, or the target's where file is None."""
    graph = cut_lm_head(target) if file is None else core.read_model(file)
    return core.compile_model(graph, device, unpinned(device, properties))


def _one_of(ports: Mapping[str, Any], names: Sequence[str]) -> str:
    lacking = [] if any(name in ports for name in names) else [names[0]]
    lacking += [] if "hidden_states" in ports else ["hidden_states"]
    if lacking:
        raise GraftError(
            f"no MTP layer: expected the inputs {' and '.join(lacking)}, found {', '.join(sorted(ports))[:200]}"
        )
    return next(name for name in names if name in ports)
