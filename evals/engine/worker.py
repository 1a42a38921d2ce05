"""The engine's process: builds one arm's pipeline, then answers one request after another.

Run by `evals.engine.process` as `python -P -m evals.engine.worker READ_FD WRITE_FD`; first line Build, then Ask.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from evals.engine.childside import connect
from evals.engine.protocol import Ask, Beat, Build, Done, FromWorker, Problem, Ready, ToWorker
from tasks.images import pixels

_BEAT_S = 0.5
_OVERRUN = 64
"""Tokens beyond the budget that are still taken before the engine is told to stop."""


def main() -> None:
    """Serve until the parent goes away."""
    receive, send_line = connect()
    encoder = msgspec.json.Encoder()
    decoder = msgspec.json.Decoder(ToWorker)

    def send(message: FromWorker) -> None:
        send_line(encoder.encode(message))

    build = decoder.decode(receive())
    assert isinstance(build, Build)
    try:
        engine = _Engine(build)
    except Exception as error:  # the bindings raise RuntimeError, ValueError, TypeError and others alike
        send(Problem(kind="error", message=str(error)))
        return
    send(Ready())
    while True:
        ask = decoder.decode(receive())
        assert isinstance(ask, Ask)
        try:
            send(engine.decode(ask, lambda tokens: send(Beat(tokens=tokens))))
        except Exception as error:
            send(Problem(kind="error", message=str(error)))


class _Engine:
    """One arm's ContinuousBatchingPipeline."""

    def __init__(self, build: Build) -> None:
        import openvino
        import openvino_genai

        self._genai, self._tensor = openvino_genai, openvino.Tensor
        self._k = build.k
        self._stop_ids = set(build.stop_ids)
        scheduler = openvino_genai.SchedulerConfig()
        for key, value in build.scheduler.items():
            setattr(scheduler, key, value)
        properties: dict[str, Any] = dict(build.properties)
        if build.head is not None:
            properties["draft_model"] = openvino_genai.draft_model(
                build.head, build.device, **build.properties
            )
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            build.model, scheduler, build.device, properties
        )
        self._tokenizer = self._pipeline.get_tokenizer()

    def decode(self, ask: Ask, beat: Any) -> Done | Problem:
        recorder = _recorder(self._genai, ask.max_new_tokens + _OVERRUN, beat)
        images = [] if ask.image is None else [[self._tensor(pixels(ask.image))]]
        asked = time.perf_counter()
        if images:
            result = self._pipeline.generate(
                [ask.text], images=images, generation_config=[self._config(ask)], streamer=recorder
            )[0]
            ignored = not recorder.ids  # this result has no status; whatever is decoded delivers a token
        else:
            result = self._pipeline.generate([ask.text], [self._config(ask)], recorder)[0]
            ignored = result.m_status == self._genai.GenerationStatus.IGNORED
        if ignored:
            return Problem(
                kind="refused", message="the scheduler ran out of KV cache: raise --scheduler cache_size"
            )
        counters = result.extended_perf_metrics
        ids, times = recorder.ids, recorder.times
        return Done(
            ids=tuple(ids),
            steps=tuple(recorder.steps),
            text=self._tokenizer.decode(ids) if ids else "",
            streamed=self._streamed(ids, recorder.steps),
            prompt_tokens=result.perf_metrics.get_num_input_tokens(),
            reported_tokens=result.perf_metrics.get_num_generated_tokens(),
            accepted=None if counters is None else counters.get_num_accepted_tokens(),
            drafted=None if counters is None else counters.get_num_draft_tokens(),
            ttft_s=times[0] - asked if times else None,
            decode_s=times[-1] - times[0] if times else None,
        )

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
        return config

    def _streamed(self, ids: list[int], steps: list[int]) -> str:
        """The pieces that genai's own text streamer hands a client, step by step, joined. Run after the clock stops."""
        pieces: list[str] = []
        streamer = self._genai.TextStreamer(self._tokenizer, pieces.append)
        at = 0
        for step in steps:
            streamer.write(ids[at] if step == 1 else ids[at : at + step])
            at += step
        streamer.end()
        return "".join(pieces)


def _recorder(genai: Any, limit: int, beat: Any) -> Any:
    class Recorder(genai.StreamerBase):  # type: ignore[misc]
        """Takes ids as the engine delivers them: an int, or a list whose length is the step's size."""

        def __init__(self) -> None:
            super().__init__()
            self.ids: list[int] = []
            self.steps: list[int] = []
            self.times: list[float] = []
            self._next_beat = time.perf_counter() + _BEAT_S

        def write(self, tokens: int | list[int]) -> Any:
            now = time.perf_counter()
            taken = tokens if isinstance(tokens, list) else [tokens]
            self.ids += taken
            self.steps.append(len(taken))
            self.times.append(now)
            if now >= self._next_beat:
                self._next_beat = now + _BEAT_S
                beat(len(self.ids))
            return genai.StreamingStatus.STOP if len(self.ids) > limit else genai.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    return Recorder()


if __name__ == "__main__":
    main()
