"""The child that replays answers and measures them. Run by `evals.margins` as `python -P -m evals.engine.replayer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from evals.engine.childside import connect
from evals.engine.replay_protocol import FromReplayer, Load, Loaded, Measure, ReplayProblem, ToReplayer
from evals.measure import Yardsticks, measure
from evals.replay import PagedReplay, Replay, ReplayError, StatefulReplay


def main() -> None:
    """Serve until the parent goes away."""
    receive, send_line = connect()
    decoder = msgspec.json.Decoder(ToReplayer)

    def send(message: FromReplayer) -> None:
        send_line(msgspec.json.encode(message))

    load = decoder.decode(receive())
    assert isinstance(load, Load)
    try:
        replay, loaded = _load(load)
        tokenizer = _tokenizer(load.model)
    except Exception as error:  # the bindings raise RuntimeError, ValueError, TypeError and others alike
        send(ReplayProblem(str(error)))
        return
    send(loaded)
    yardsticks = Yardsticks()
    while True:
        order = decoder.decode(receive())
        assert isinstance(order, Measure)
        try:
            prompt = [int(i) for i in tokenizer.encode(order.text).input_ids.data[0]]
            send(measure(replay, yardsticks, prompt, order))
        except Exception as error:
            send(ReplayProblem(str(error)))


def _load(load: Load) -> tuple[Replay, Loaded]:
    model = Path(load.model)
    try:
        replay: Replay = PagedReplay(model, load.target, load.device, load.properties, batch=load.batch)
        return replay, Loaded(source="paged", remark="")
    except ReplayError as error:
        replay = StatefulReplay(model, load.target, load.device, load.properties)
        return replay, Loaded(source="stateful", remark=str(error))


def _tokenizer(model: str) -> Any:
    import openvino_genai

    return openvino_genai.Tokenizer(model)


if __name__ == "__main__":
    main()
