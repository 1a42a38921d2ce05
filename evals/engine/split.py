"""Greedy decoding with a head in the split layout, on openvino.Core alone: draft K, verify K + 1, keep what holds.

openvino-genai decodes optimum-intel's layout only. This engine decodes both, plain too, so that the arms of a run are
of one engine; on optimum-intel's layout it gives a second opinion.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evals.engine.drafter import Drafter, load_layer, load_lm_head
from evals.engine.grafts import GraftError
from evals.engine.paged import OutOfRoom
from evals.engine.protocol import Ask, Build, Done, Problem
from evals.engine.serving import Beats, Delivery, serve, streamed
from evals.engine.target import Floats, Target, load_embeddings
from evals.model_dir import EMBEDDINGS, inspect_model

_GIB = 1 << 30


class SplitEngine:
    """One arm: the target, and the head's drafter where it has one. One request at a time, no prefix caching."""

    def __init__(self, build: Build) -> None:
        import openvino as ov
        import openvino_genai

        self._genai = openvino_genai
        self._k = build.k
        self._batch = int(build.scheduler.get("max_num_batched_tokens", 4096))
        core = ov.Core()
        path = Path(build.model)
        target = path / f"{inspect_model(path, need_head=False, layout=build.layout).target}.xml"
        embed = load_embeddings(core, path, build.device, build.properties)
        drafting = build.head is not None
        self._target = Target(
            core, core.read_model(target), embed, build.device, build.properties, hidden=drafting
        )
        self._drafter: Drafter | None = None
        layer = None
        if build.head is not None:
            if embed is None:
                raise GraftError(f"expected {EMBEDDINGS}.xml, which gives a head its tokens; found none")
            head = inspect_model(build.head, layout=build.layout)
            layer = load_layer(core, head.path / f"{head.layer}.xml", build.device, build.properties)
            own = None if head.lm_head is None else head.path / f"{head.lm_head}.xml"
            lm_head = load_lm_head(core, own, target, build.device, build.properties)
            self._drafter = Drafter(layer, lm_head, embed, batch=self._batch)
        a_token = self._target.paged.bytes_per_token + (0 if layer is None else layer.bytes_per_token)
        self._target.paged.limit = _most_tokens(build, a_token, self._target.paged.block)
        self._tokenizer = openvino_genai.Tokenizer(build.model)
        self._stop_ids = frozenset((*build.stop_ids, self._tokenizer.get_eos_token_id()))

    def decode(self, ask: Ask, beat: Beats) -> Done | Problem:
        """Decode one prompt; a Problem where the caches don't hold it."""
        asked = time.perf_counter()
        delivery = Delivery(beat)
        prompt = [int(i) for i in self._tokenizer.encode(ask.text).input_ids.data[0]]
        try:
            accepted, drafted = self._run(prompt, ask.max_new_tokens, delivery)
        except OutOfRoom as error:
            return Problem(kind="refused", message=str(error))
        return Done(
            ids=tuple(delivery.ids),
            steps=tuple(delivery.steps),
            text=self._tokenizer.decode(delivery.ids),
            streamed=streamed(self._genai, self._tokenizer, delivery),
            prompt_tokens=len(prompt),
            reported_tokens=len(delivery.ids),
            accepted=None if self._drafter is None else accepted,
            drafted=None if self._drafter is None else drafted,
            ttft_s=delivery.ttft_s(asked),
            decode_s=delivery.decode_s,
        )

    def _run(self, prompt: list[int], budget: int, delivery: Delivery) -> tuple[int, int]:
        """Decode until a stop id or the budget. Drafts accepted and drafted, counted as openvino-genai does: without
        those of the step that ends the answer, since a stop leaves the ones behind it unjudged."""
        accepted = drafted = 0
        judged = (0, 0)
        logits, hidden = self._prefill(prompt)
        tokens = [int(np.argmax(logits[-1]))]
        delivery.take(tokens)
        tokens = [*prompt[1:], *tokens]
        while (left := budget - len(delivery.ids)) > 0 and delivery.ids[-1] not in self._stop_ids:
            accepted, drafted = accepted + judged[0], drafted + judged[1]
            width = min(self._k, left - 1)
            drafts = self._drafter.draft(hidden, tokens, width) if self._drafter and width else []
            choices = np.argmax(self._target.feed([tokens[-1], *drafts], undoable=bool(drafts)), axis=-1)
            held = next((i for i, token in enumerate(drafts) if token != choices[i]), len(drafts))
            tokens = [int(token) for token in choices[: held + 1]]
            delivery.take(tokens[: _until(self._stop_ids, tokens)])
            judged = (held, len(drafts))
            if drafts:
                self._target.keep(held + 1)
                hidden = self._target.hidden()[: held + 1]
        return accepted, drafted

    def _prefill(self, prompt: list[int]) -> tuple[Floats, Floats]:
        """Logits of the prompt's last token, and the hidden states of all where there is a drafter."""
        self._target.reset()
        if self._drafter is not None:
            self._drafter.reset()
        logits: Floats = np.empty((0, 0), np.float32)
        states: list[Floats] = []
        for at in range(0, len(prompt), self._batch):
            logits = self._target.feed(prompt[at : at + self._batch], last=True)
            if self._drafter is not None:
                states.append(self._target.hidden())
        return logits, np.concatenate(states) if states else logits[:0]


def _until(stop_ids: frozenset[int], tokens: Sequence[int]) -> int:
    """How many tokens there are up to and with the first stop id."""
    return next((i + 1 for i, token in enumerate(tokens) if token in stop_ids), len(tokens))


def _most_tokens(build: Build, bytes_per_token: float, block: int) -> int | None:
    """Tokens that the scheduler's settings leave room for; None where they set no limit (cache_size 0)."""
    blocks, gib = (int(build.scheduler.get(name, 0)) for name in ("num_kv_blocks", "cache_size"))
    if blocks:
        return blocks * block
    return int(gib * _GIB / bytes_per_token) if gib and bytes_per_token else None


if __name__ == "__main__":
    serve(SplitEngine)
