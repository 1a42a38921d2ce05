"""The threat: a served head that the gate passes though its clients get something else than the target says.

llama.cpp's own server, plain and speculating, with a proxy in front of the speculating one that makes each fault in its
real replies. Every fault has to be called by its own name, and none may be served.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.sample import sample_dir
from gate.cli import gate
from tests.fixtures.fault_proxy import FaultProxy, proxied
from tests.fixtures.gguf_tokenizer import lay_tokenizer
from tests.fixtures.llama_server import gguf
from tests.fixtures.served import POLICY, lay_task, llama_servers

pytestmark = [pytest.mark.timeout(600)]

FAULTS = {
    "drop": "skipped-or-repeated-tokens",
    "drop one": "stream-mismatch",
    "repeat one": "stream-mismatch",
    "swap two": "stream-mismatch",
    "lose the end": "stream-mismatch",
    "prompt billed": "usage-mismatch",
    "delay": "reply-delayed",
    "pause": "reply-delayed",
    "late": "reply-delayed",
    "repeat": "over-delivery",
    "duplicate": "over-delivery",
    "wrong usage": "usage-mismatch",
    "crooked sum": "usage-mismatch",
    "other finish": "finish-mismatch",
    "filtered": "finish-mismatch",
    "no usage": "usage-mismatch",
    "cut": "reply-cut",
    "clean cut": "reply-cut",
    "stall": "reply-stalled",
    "garbage": "reply-malformed",
    "error inside": "reply-malformed",
    "html": "not-an-api",
    "redirect": "not-an-api",
    "429": "rate-limited",
    "500": "server-error",
    "503": "server-error",
    "reset": "server-unreachable",
}
INFRA = {"not-an-api", "rate-limited", "server-error", "server-unreachable"}
KEY = "sk-a-key-that-nobody-may-see"


class Served:
    """Two proxies before two servers, a task and a policy."""

    def __init__(self, plain: FaultProxy, spec: FaultProxy, folder: Path) -> None:
        self.plain, self.spec, self.folder = plain, spec, folder
        self.task = lay_task(folder / "short")
        self.policy = folder / "gate.toml"
        self.policy.write_text(POLICY)
        self.runs = 0

    def check(
        self, *args: str, fault: str | None = None, only: str = "", out: Path | None = None
    ) -> tuple[int, dict[str, Any], Path]:
        self.runs += 1
        out = out or self.folder / f"run{self.runs}"
        self.spec.fault, self.spec.only = fault, only
        args = ("--tasks", str(self.task), "--task", "short", "--policy", str(self.policy), "--quiet", *args)
        urls = ("--plain-url", self.plain.url, "--spec-url", self.spec.url)
        try:
            code = gate.main(["check", "--out", str(out), *urls, *args], standalone_mode=False)
        finally:
            self.spec.fault = None
        return code, json.loads((out / "verdict.json").read_text()), out


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        llama_servers("plain", "spec") as (plain_port, spec_port),
        proxied(plain_port) as plain,
        proxied(spec_port) as spec,
    ):
        yield Served(plain, spec, tmp_path_factory.mktemp("served"))


def codes(verdict: dict[str, Any]) -> set[str]:
    return {f["code"] for f in verdict["findings"] if f["severity"] != "note"}


def test_a_sound_served_head_is_served(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    code, verdict, run = served.check()
    assert (code, verdict["decision"]) == (0, "serve"), verdict["findings"]
    arms = {a["arm"]: a for a in verdict["tasks"][0]["arms"]}
    assert arms["served"]["drafted"] > 0
    assert arms["plain"]["drafted"] in (None, 0)
    assert verdict["target_digest"] == "unknown" and not verdict["head_digests"] and not verdict["k"]
    assert any("can't be seen" in caveat for caveat in verdict["caveats"])
    assert not (run / "attestation.json").exists() and not (run / "attestation.svr.json").exists()
    assert served.spec.headers_seen[-1]["Authorization"] == f"Bearer {KEY}"
    assert not [f for f in run.rglob("*") if f.is_file() and KEY.encode() in f.read_bytes()]
    answers = [json.loads(line) for line in (run / "answers.jsonl").read_text().splitlines()]
    assert {a["probe"] for a in answers} == {None, "whole", "state"}
    assert all(a["server"]["system_fingerprint"] and a["reported_tokens"] for a in answers)
    sent = served.spec.bodies[0]
    assert (sent["temperature"], sent["seed"], sent["stream"], sent["max_tokens"]) == (0, 1, True, 48)


def test_a_server_that_sends_several_tokens_at_a_time_is_served(served: Served) -> None:
    code, verdict, run = served.check("--no-state-probe", fault="three at a time")
    assert (code, verdict["decision"]) == (0, "serve"), verdict["findings"]
    assert "diverged" not in {f["code"] for f in verdict["findings"]}
    answers = [json.loads(line) for line in (run / "answers.jsonl").read_text().splitlines()]
    pieces = {a["arm"]: len(a["cuts"]) for a in answers if a["probe"] is None and a["prompt"] == "rain"}
    assert pieces["served"] < pieces["plain"] / 2


@pytest.mark.parametrize(("fault", "code"), FAULTS.items())
def test_each_fault_is_named_and_none_is_served(served: Served, fault: str, code: str) -> None:
    hang = ("--hang-timeout", "2s") if fault == "stall" else ()
    exit_code, verdict, _ = served.check("--no-state-probe", *hang, fault=fault, only="poem")
    assert code in codes(verdict), [(f["code"], f["message"]) for f in verdict["findings"]]
    assert verdict["decision"] == ("inconclusive" if code in INFRA else "do_not_serve"), verdict["findings"]
    assert exit_code == (3 if code in INFRA else 1)


def test_a_cut_reply_is_not_asked_for_again(served: Served) -> None:
    before = served.spec.asked
    served.check("--no-state-probe", fault="cut")
    assert served.spec.asked - before == 5, "two prompts twice, and one without a stream"


def test_the_same_fault_in_plain_is_not_put_down_to_the_head(served: Served) -> None:
    served.plain.fault = "cut"
    try:
        code, verdict, _ = served.check("--no-state-probe", fault="cut")
    finally:
        served.plain.fault = None
    assert (code, verdict["decision"]) == (3, "inconclusive")


def test_without_a_word_on_drafts_nothing_is_passed(served: Served, tmp_path: Path) -> None:
    """A log whose lines were there before says nothing of this run. Unseen is not 0 %, and no pass."""
    log = tmp_path / "server.log"
    log.write_text("draft accept 96.3% (157/163)\n")
    _, verdict, _ = served.check("--no-state-probe", "--spec-log", str(log), fault="no timings")
    assert verdict["decision"] == "inconclusive" and "speculation-unseen" in codes(verdict)


@pytest.mark.parametrize("fault", ["503", "429", "reset"])
def test_what_the_server_left_unanswered_is_asked_again_and_nothing_else(served: Served, fault: str) -> None:
    code, verdict, out = served.check("--no-state-probe", fault=fault, only="poem")
    assert (code, verdict["decision"]) == (3, "inconclusive")
    before = served.spec.asked, served.plain.asked
    code, verdict, _ = served.check("--no-state-probe", out=out)
    assert (code, verdict["decision"]) == (0, "serve"), verdict["findings"]
    assert served.spec.asked - before[0] == 2, "the poem, twice"
    assert served.plain.asked == before[1]
    assert any("left 2 questions unanswered" in caveat for caveat in verdict["caveats"])
    texts = {json.loads(line)["text"] for line in (out / "answers.jsonl").read_text().splitlines()}
    assert "" not in texts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lay_tokenizer(gguf(), tmp_path_factory.mktemp("tokenizer") / "smollm2"))


def test_delivered_tokens_are_counted_by_the_models_tokenizer(served: Served, tokenizer: str) -> None:
    code, verdict, run = served.check("--no-state-probe", "--tokenizer", tokenizer)
    assert (code, verdict["decision"]) == (0, "serve"), verdict["findings"]
    assert any("by which" in c or "--tokenizer splits" in c for c in verdict["caveats"])
    answers = [json.loads(line) for line in (run / "answers.jsonl").read_text().splitlines()]
    assert {a["ids_from"] for a in answers} == {"tokenizer"}
    assert all(0 <= a["reported_tokens"] - len(a["ids"]) <= 1 for a in answers), "the end of text is billed"


@pytest.mark.parametrize(("fault", "code"), [("drop", "short-delivery"), ("repeat", "over-delivery")])
def test_tokens_lost_or_doubled_are_counted_and_placed(
    served: Served, tokenizer: str, fault: str, code: str
) -> None:
    _, verdict, _ = served.check("--no-state-probe", "--tokenizer", tokenizer, fault=fault, only="poem")
    assert verdict["decision"] == "do_not_serve"
    assert {code, "skipped-or-repeated-tokens"} <= codes(verdict), verdict["findings"]


@pytest.mark.parametrize("fault", [None, "no timings", "crooked sum"])
def test_another_models_tokenizer_is_told_and_judges_nothing(served: Served, fault: str | None) -> None:
    """The sample's tokenizer for SmolLM2: no clean verdict, and no fault but the one that is there."""
    _, verdict, _ = served.check("--no-state-probe", "--tokenizer", str(sample_dir()), fault=fault)
    found = {f["code"] for f in verdict["findings"] if f["severity"] in ("block", "unreadable")}
    there = {None: set(), "no timings": {"speculation-unseen"}, "crooked sum": {"usage-mismatch"}}[fault]
    assert found == {"another-tokenizer"} | there, verdict["findings"]
    assert verdict["decision"] == ("do_not_serve" if fault == "crooked sum" else "inconclusive")


def test_the_run_can_be_read_again(served: Served) -> None:
    _, verdict, run = served.check("--no-state-probe")
    assert gate.main(["grade", str(run), "--quiet"], standalone_mode=False) == 0
    assert json.loads((run / "verdict.json").read_text())["decision"] == verdict["decision"]
    assert (
        gate.main(["export-run", str(run), "--out", str(run / "answers.parquet")], standalone_mode=False) == 0
    )
