"""The threat: a server of another dialect than llama.cpp's, taken for broken where it is whole, or the other way.

transformers' `serve` ends a stream without `[DONE]`, bills in its last chunk whether asked to or not, tells no ids, no
logprobs and no drafts, and ignores what it doesn't know. Real servers of the sample's own checkpoint.

`make test-dialect` runs this: it needs the exporter's environment (torch) and 100 MB more, in a cache of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.endpoint.address import parse_endpoint
from evals.endpoint.reply import Reply
from evals.endpoint.seat import EndpointSeat
from evals.messages import Message
from evals.plan import Asked
from evals.types import Failure
from gate.cli import gate
from tests.dialect.serving import dialect_python, packages, text_checkpoint, transformers_servers
from tests.evals.checkpoints import MODELS
from tests.fixtures.fault_proxy import FaultProxy, proxied
from tests.fixtures.served import POLICY, lay_task

pytestmark = [pytest.mark.timeout(900)]

FAULTS = {
    "cut": "reply-cut",
    "clean cut": "reply-cut",
    "garbage": "reply-malformed",
    "error inside": "reply-malformed",
    "drop": "skipped-or-repeated-tokens",
    "duplicate": "over-delivery",
    "wrong usage": "usage-mismatch",
}
TOKENS = 40


class Served:
    """Servers of one checkpoint, twice; and of one that is told to draft, which its architecture doesn't support."""

    def __init__(self, plain: int, other: int, drafting: int, proxy: FaultProxy, folder: Path) -> None:
        self.plain, self.other, self.drafting = (f"http://127.0.0.1:{p}/v1" for p in (plain, other, drafting))
        self.proxy, self.folder = proxy, folder
        self.task = lay_task(folder / "short")
        said = (self.task / "task.toml").read_text()
        (self.task / "task.toml").write_text(said.replace("= 48", f"= {TOKENS}"))
        (folder / "gate.toml").write_text(POLICY)
        self.runs = 0

    def check(self, *args: str) -> tuple[int, dict[str, Any], Path]:
        self.runs += 1
        out = self.folder / f"run{self.runs}"
        small = ["--tasks", str(self.task), "--task", "short", "--policy", str(self.folder / "gate.toml")]
        command = ["check", "--out", str(out), *small, "--no-state-probe", "--quiet", *args]
        return gate.main(command, standalone_mode=False), json.loads((out / "verdict.json").read_text()), out


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dialect")
    python = dialect_python()
    models = [
        text_checkpoint(folder / "plain"),
        text_checkpoint(folder / "other"),
        text_checkpoint(folder / "drafting", prompt_lookup_num_tokens=3),
    ]
    site = packages(python)
    with transformers_servers(python, site, *models) as ports, proxied(ports[1]) as proxy:
        yield Served(*ports, proxy, folder)


def ask(url: str, text: str, most: int, api: str = "chat", **how: Any) -> Reply | Failure:
    seat = EndpointSeat(parse_endpoint(url, "--spec-url", api=api), "spec")
    seat.start()
    assert seat.ready() is None
    try:
        return seat.ask(Asked("t", "p", text, most, messages=(Message("user", text),)), **how)
    finally:
        seat.kill()


def codes(verdict: dict[str, Any]) -> set[str]:
    return {f["code"] for f in verdict["findings"] if f["severity"] in ("block", "unreadable")}


def answers_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "answers.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_reply_is_whole_streamed_or_not(served: Served, api: str) -> None:
    streamed, whole = (ask(served.plain, "Count from 1 to 9", 12, api, whole=w) for w in (False, True))
    assert isinstance(streamed, Reply) and isinstance(whole, Reply), (streamed, whole)
    assert streamed.text.rstrip() == whole.text.rstrip() != "" and streamed.cuts and not whole.cuts
    assert streamed.finish == whole.finish == "length"
    for reply in (streamed, whole):
        assert reply.usage is not None and reply.usage.completion_tokens == 12
        assert not reply.usage.contradiction()
        assert (reply.drafted, reply.accepted, reply.ids_from, reply.logprobs) == (None, None, None, ())
        assert reply.server == {"model": "plain", "finish_reason": "length"}


def test_an_end_of_text_is_a_stop(served: Served) -> None:
    reply = ask(served.plain, "Count from 1 to 9", 400)
    assert isinstance(reply, Reply) and reply.finish == "stop", reply
    assert "<|im_end|>" not in reply.text


def test_likeliest_tokens_that_it_does_not_tell_are_none(served: Served) -> None:
    reply = ask(served.plain, "Count from 1 to 9", 4, whole=True, top_logprobs=20)
    assert isinstance(reply, Reply) and reply.logprobs == ()


@pytest.mark.parametrize("how", [(), ("--no-stream",), ("--api", "completions")])
def test_two_servers_that_tell_no_drafts_are_never_served(served: Served, how: tuple[str, ...]) -> None:
    """Equal to the byte, and still nothing shows that anything was speculated."""
    code, verdict, run = served.check("--plain-url", served.plain, "--spec-url", served.other, *how)
    assert (code, verdict["decision"]) == (3, "inconclusive")
    assert "speculation-unseen" in codes(verdict) and "not-exercised" not in codes(verdict)
    arm = next(a for a in verdict["tasks"][0]["arms"] if a["arm"] == "served")
    assert (arm["drafted"], arm["acceptance"], arm["identical"]) == (None, None, 2)
    assert any("no system_fingerprint" in caveat for caveat in verdict["caveats"])
    assert not [a for a in answers_of(run) if a["failure"]]
    assert {a["reported_tokens"] for a in answers_of(run)} <= set(range(1, TOKENS + 1))


def test_its_bill_is_held_against_its_own_tokenizer(served: Served) -> None:
    own = str(MODELS / "qwen3_5")
    _, verdict, run = served.check(
        "--plain-url", served.plain, "--spec-url", served.other, "--tokenizer", own
    )
    assert codes(verdict) == {"speculation-unseen"}, verdict["findings"]
    assert all(0 <= a["reported_tokens"] - len(a["ids"]) <= 3 for a in answers_of(run))


@pytest.mark.parametrize(("fault", "code"), FAULTS.items())
def test_a_fault_is_told_from_an_end_without_done(served: Served, fault: str, code: str) -> None:
    served.proxy.fault, served.proxy.only = fault, "poem"
    try:
        exit_code, verdict, _ = served.check("--plain-url", served.plain, "--spec-url", served.proxy.url)
    finally:
        served.proxy.fault, served.proxy.only = None, ""
    assert (exit_code, verdict["decision"]) == (1, "do_not_serve"), verdict["findings"]
    assert code in codes(verdict), [(f["code"], f["message"]) for f in verdict["findings"]]


def test_an_error_of_the_drafting_itself_is_told_in_its_words(served: Served) -> None:
    """Its architecture keeps a state that can't be wound back: the server says so in the middle of its stream."""
    _, verdict, _ = served.check("--plain-url", served.plain, "--spec-url", served.drafting)
    assert verdict["decision"] == "do_not_serve"
    found = [f["message"] for f in verdict["findings"] if f["code"] == "reply-malformed"]
    assert any("assisted generation is not supported" in message for message in found), verdict["findings"]


def test_a_directory_beside_its_checkpoint_names_what_differs(served: Served) -> None:
    """The sample is this checkpoint at 4 bits: prompts and stream agree, so decoding differs, and it is no twin."""
    own = ("--model", "sample", "--no-control", "--k", "1")
    code, verdict, run = served.check(*own, "--spec-url", served.other)
    texts: dict[str, dict[str, str]] = {}
    prompts: dict[str, set[int]] = {}
    for answer in answers_of(run):
        if answer["repeat"] == 0 and answer["probe"] is None:
            texts.setdefault(answer["prompt"], {})[answer["arm"]] = answer["text"]
            prompts.setdefault(answer["prompt"], set()).add(answer["prompt_tokens"])
    assert all(len(counts) == 1 for counts in prompts.values()), "one template, one tokenizer"
    apart = {p for p, by in texts.items() if by["mtp@1"] != by["served@1"]}
    found = [f for f in verdict["findings"] if f["code"] == "served-differs" and f["prompt"] is not None]
    assert {f["prompt"] for f in found if f["severity"] == "block"} == apart, verdict["findings"]
    layers = {f["prompt"]: f["evidence"]["layer"] for f in found}
    for prompt, layer in layers.items():  # its chats are trimmed, streamed ones too
        trimmed = texts[prompt]["mtp@1"].rstrip() == texts[prompt]["served@1"].rstrip()
        assert (layer == "detokenizer") == trimmed, found
    assert not set(layers.values()) & {"template", "stream assembly", "stop handling"}, found
    assert code != 0 and verdict["decision"] != "serve"
    served_arm = next(t for t in verdict["tasks"] if t["arm"] == "served@1")
    assert served_arm["decision"] == ("do_not_serve" if apart else "inconclusive")


@pytest.fixture(scope="module")
def earlier(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The exporter's own version of transformers: no usage at all, words for pieces, an empty list of models."""
    python = dialect_python()
    model = text_checkpoint(tmp_path_factory.mktemp("earlier") / "plain")
    with (
        transformers_servers(python, packages(python, newer=False), model) as (port,),
        proxied(port) as proxy,
    ):
        upstream, served.proxy = served.proxy, proxy
        yield f"http://127.0.0.1:{port}/v1"
        served.proxy = upstream


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (None, "speculation-unseen"),
        ("clean cut", "reply-cut"),
        ("drop", "skipped-or-repeated-tokens"),
        ("other finish", "finish-mismatch"),
    ],
)
def test_a_server_that_sends_no_bill_is_not_taken_for_one_that_delivers_nothing(
    served: Served, earlier: str, fault: str | None, code: str
) -> None:
    served.proxy.fault, served.proxy.only = fault, "poem"
    exit_code, verdict, run = served.check("--plain-url", earlier, "--spec-url", served.proxy.url)
    assert exit_code == (1 if fault else 3)
    assert code in codes(verdict) and "short-delivery" not in codes(verdict), verdict["findings"]
    assert {a["reported_tokens"] for a in answers_of(run)} == {None}
    assert any("sent no usage" in caveat for caveat in verdict["caveats"])
