"""The engine's process: builds one arm's pipeline, then answers one request after another.

Run by `evals.engine.process` as `python -P -m evals.engine.worker READ_FD WRITE_FD`; Build first, then Ask or
AskAll.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from evals.engine.protocol import Ask, Build, Done, Problem
from evals.engine.serving import Beats, Delivery, serve, streamed
from evals.engine.together import fly
from evals.types import Method
from tasks.images import pixels

_REFUSED = Problem(kind="refused", message="the scheduler ran out of KV cache: raise --scheduler cache_size")
_OVERRUN = 64
"""Tokens beyond the budget that are still taken before the engine is told to stop."""

_UNCOUNTED: frozenset[Method] = frozenset({"dflash"})
"""Methods whose drafts openvino-genai 2026.4.1 doesn't count: it says how many were accepted, of 0."""


class _Engine:
    """One arm's ContinuousBatchingPipeline."""

    def __init__(self, build: Build) -> None:
        import openvino
        import openvino_genai

        self._genai, self._tensor = openvino_genai, openvino.Tensor
        self._k, self._max_ngram = build.k, build.max_ngram
        self._counted = build.method not in _UNCOUNTED
        self._asked = 0
        self._stop_ids = set(build.stop_ids)
        scheduler = openvino_genai.SchedulerConfig()
        for key, value in build.scheduler.items():
            setattr(scheduler, key, value)
        properties: dict[str, Any] = dict(build.properties)
        if build.head is not None:
            properties["draft_model"] = openvino_genai.draft_model(
                build.head, build.device, **build.properties
            )
        if build.max_ngram is not None:
            properties["prompt_lookup"] = True
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            build.model, scheduler, build.device, properties
        )
        self._tokenizer = self._pipeline.get_tokenizer()

    def decode(self, ask: Ask, beat: Beats) -> Done | Problem:
        delivery = Delivery(beat)
        recorder = _recorder(self._genai, ask.max_new_tokens + _OVERRUN, delivery)
        images = [] if ask.image is None else [self._images(ask)]
        asked = time.perf_counter()
        if images:
            result = self._pipeline.generate(
                [ask.text], images=images, generation_config=[self._config(ask)], streamer=recorder
            )[0]
            ignored = not delivery.ids  # this result has no status; whatever is decoded delivers a token
        else:
            result = self._pipeline.generate([ask.text], [self._config(ask)], recorder)[0]
            ignored = result.m_status == self._genai.GenerationStatus.IGNORED
        if ignored:
            return _REFUSED
        return self._done(delivery, result.perf_metrics, result.extended_perf_metrics, asked)

    def decode_all(self, asks: Sequence[Ask], beat: Beats) -> list[Done | Problem]:
        """Decode requests in flight together. The runtime counts no drafts of one of them."""
        requests = [
            (ask.text, self._images(ask), self._config(ask), ask.max_new_tokens + _OVERRUN) for ask in asks
        ]
        asked = time.perf_counter()
        flights = fly(self._pipeline, requests, self._asked, beat)
        self._asked += len(requests)
        return [
            _REFUSED
            if flight.handle.get_status() == self._genai.GenerationStatus.IGNORED
            else self._done(flight.delivery, flight.handle.get_perf_metrics(), None, asked)
            for flight in flights
        ]

    def _done(self, delivery: Delivery, metrics: Any, counters: Any, asked: float) -> Done:
        counters = counters if self._counted else None
        return Done(
            ids=tuple(delivery.ids),
            steps=tuple(delivery.steps),
            text=self._tokenizer.decode(delivery.ids) if delivery.ids else "",
            streamed=streamed(self._genai, self._tokenizer, delivery),
            prompt_tokens=metrics.get_num_input_tokens(),
            reported_tokens=metrics.get_num_generated_tokens(),
            accepted=None if counters is None else counters.get_num_accepted_tokens(),
            drafted=None if counters is None else counters.get_num_draft_tokens(),
            ttft_s=delivery.ttft_s(asked),
            decode_s=delivery.decode_s,
        )

    def _images(self, ask: Ask) -> list[Any]:
        return [] if ask.image is None else [self._tensor(pixels(ask.image))]

    def _config(self, ask: Ask) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = ask.max_new_tokens
        config.do_sample = False
        config.apply_chat_template = False
        config.stop_token_ids = self._stop_ids
        eos = self._tokenizer.get_eos_token_id()
        if eos >= 0:
            config.set_eos_token_id(eos)
        if self._k:
            config.num_assistant_tokens = self._k
        if self._max_ngram is not None:
            config.max_ngram_size = self._max_ngram
        return config


def _recorder(genai: Any, limit: int, delivery: Delivery) -> Any:
    class Recorder(genai.StreamerBase):  # type: ignore[misc]
        """Takes ids as the engine delivers them: an int, or a list whose length is the step's size."""

        def write(self, tokens: int | list[int]) -> Any:
            delivery.take(tokens if isinstance(tokens, list) else [tokens])
            return genai.StreamingStatus.STOP if len(delivery.ids) > limit else genai.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    return Recorder()


if __name__ == "__main__":
    serve(_Engine)
