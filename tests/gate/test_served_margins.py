"""The threat: margins that a run reads off servers and nobody ever saw come from real ones; zeros taken for margins.

llama.cpp's own servers: plain, and a speculating one whose keys lie in 8 bits, so that near-ties fall otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.endpoint.address import parse_endpoint
from evals.endpoint.margins import Place, place
from evals.endpoint.reply import Reply
from evals.endpoint.seat import EndpointSeat
from evals.messages import Message
from evals.plan import Asked
from evals.records import RunReader
from gate.cli import gate
from tests.fixtures.served import POLICY, PROMPTS, lay_task, llama_servers

pytestmark = [pytest.mark.timeout(600)]

MORE = [
    "What is the capital of France?",
    "Write a short letter to a friend about a walk in the hills.",
    "Explain why the sky is blue.",
]
TOKENS = 28


def places(port: int, text: str) -> tuple[Reply, list[Place]]:
    seat = EndpointSeat(parse_endpoint(f"http://127.0.0.1:{port}/v1", "--spec-url"), "plain")
    seat.start()
    assert seat.ready() is None
    asked = Asked("short", "p", text, max_new_tokens=TOKENS, messages=(Message("user", text),))
    reply = seat.ask(asked, whole=True, top_logprobs=20)
    seat.kill()
    assert isinstance(reply, Reply)
    return reply, [place(entry) for entry in reply.logprobs]


def test_a_real_runs_margins_are_plains_own_numbers(tmp_path: Path) -> None:
    task = lay_task(tmp_path / "short")
    more = "".join(f'[[prompt]]\nid = "x{n}"\ntext = "{text}"\n' for n, text in enumerate(MORE))
    (task / "prompts.toml").write_text(PROMPTS + more)
    said = (task / "task.toml").read_text()
    (task / "task.toml").write_text(said.replace("max_new_tokens = 48", f"max_new_tokens = {TOKENS}"))
    (tmp_path / "gate.toml").write_text(POLICY)
    run = tmp_path / "run"
    with llama_servers("plain", "spec-q8") as (plain, spec):
        urls = [f"--plain-url=http://127.0.0.1:{plain}", f"--spec-url=http://127.0.0.1:{spec}"]
        small = ["--tasks", str(task), "--task", "short", "--policy", str(tmp_path / "gate.toml")]
        command = ["check", "--out", str(run), *urls, *small, "--no-state-probe", "--quiet"]
        assert gate.main(command, standalone_mode=False) in (0, 1, 3)
        answers = {(a.arm, a.prompt): a for a in RunReader(run).answers() if a.repeat == 0 and not a.probe}
        margins = {m.prompt: m for m in RunReader(run).margins()}
        assert margins, "keys in 8 bits change no answer here: make it other prompts"
        again = {n: places(plain, MORE[n]) for n in range(3) if f"x{n}" in margins}
        reply, drafted = places(
            spec, "Copy this exactly:\nred fox, blue cat, red fox, blue cat, red fox, blue cat"
        )
    for number, (_, found) in again.items():
        margin = margins[f"x{number}"]
        top = found[margin.token_index].top
        other = answers["served", f"x{number}"].text.encode()
        before = b"".join(p.token for p in found[: margin.token_index])
        took = next((v for t, v in sorted(top.items(), reverse=True) if other.startswith(before + t)), None)
        assert margin.source == "server" and margin.rank >= 1
        assert not margin.reproduced or (
            took is not None and margin.gap == pytest.approx(max(top.values()) - took)
        )
        assert margin.noise == {} or margin.noise["p50"] > 0
    told = json.loads((run / "verdict.json").read_text())["findings"]
    read = {f["prompt"] for f in told if f["code"] in ("near-tie", "diverged", "not-a-near-tie")}
    assert set(margins) <= read
    assert (run / "report.html").stat().st_size > 10_000
    assert reply.accepted and reply.accepted > 0, "nothing was drafted: no zero was seen"
    unseen = [entry for entry in reply.logprobs if not place(entry).top]
    assert len(unseen) >= reply.accepted and {entry.logprob for entry in unseen} == {0.0}
    assert len(drafted) == len(reply.logprobs) and any(p.top for p in drafted)
