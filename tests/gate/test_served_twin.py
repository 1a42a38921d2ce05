"""The threat: a verdict on a directory that is taken for one on the server, though a layer between them differs; and
one server that is switched, of which nobody knows which arm answered.

The sample's own engine stands behind OpenAI's API here, and one layer of that server is spoilt at a time.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.sample import sample_dir
from gate.cli import gate
from tests.fixtures.genai_server import GenaiServer, genai_server
from tests.fixtures.served import POLICY, lay_task

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


class Twin:
    """A server of the sample's own arms, and the file that switches it."""

    def __init__(self, url: str, server: GenaiServer, mode: Path, folder: Path) -> None:
        self.url, self.server, self.mode, self.folder = url, server, mode, folder
        self.task = lay_task(folder / "short")
        task = self.task / "task.toml"
        task.write_text(task.read_text().replace("max_new_tokens = 48", "max_new_tokens = 24"))
        (folder / "gate.toml").write_text(POLICY.replace("min_drafts = 8", "min_drafts = 4"))
        self.runs = 0

    def check(self, *args: str, spoil: str | None = None) -> tuple[int, dict[str, Any], Path]:
        self.runs += 1
        out = self.folder / f"run{self.runs}"
        self.server.spoil = spoil
        small = (
            "--tasks",
            str(self.task),
            "--task",
            "short",
            "--policy",
            str(self.folder / "gate.toml"),
            "--quiet",
        )
        code = gate.main(
            ["check", "--out", str(out), "--spec-url", self.url, *small, *args], standalone_mode=False
        )
        return code, json.loads((out / "verdict.json").read_text()), out


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    folder = tmp_path_factory.mktemp("twin")
    mode = folder / "mode"
    mode.write_text("spec")
    with genai_server(sample_dir(), mode) as (url, server):
        yield Twin(url, server, mode, folder)


def layers(verdict: dict[str, Any]) -> set[str]:
    return {f["evidence"]["layer"] for f in verdict["findings"] if f["code"] == "served-differs"}


OWN = ("--model", "sample", "--no-control", "--no-state-probe", "--k", "1")


def test_the_same_head_served_gives_the_same_bytes(twin: Twin) -> None:
    _, verdict, run = twin.check(*OWN)
    assert not layers(verdict), verdict["findings"]
    texts: dict[str, dict[str, str]] = {}
    for line in (run / "answers.jsonl").read_text().splitlines():
        answer = json.loads(line)
        if answer["repeat"] == 0 and answer["probe"] is None:
            texts.setdefault(answer["prompt"], {})[answer["arm"]] = answer["text"]
    assert all(by["mtp@1"] == by["served@1"] and by["mtp@1"] for by in texts.values())
    assert {t["arm"] for t in verdict["tasks"]} == {"mtp@1", "served@1"}
    assert not (run / "attestation.json").exists()


@pytest.mark.parametrize(
    ("spoil", "layer"),
    [
        ("template", "template"),
        ("stream", "stream assembly"),
        ("token", "target"),
    ],
)
def test_the_layer_that_differs_is_named(twin: Twin, spoil: str, layer: str) -> None:
    code, verdict, run = twin.check(*OWN, spoil=spoil)
    assert layers(verdict) == {layer}, verdict["findings"]
    margins = (run / "margins.jsonl").read_text() if (run / "margins.jsonl").exists() else ""
    measured = [m for line in margins.splitlines() if (m := json.loads(line))["arm"] == "served@1"]
    if spoil == "token":
        assert measured and all(m["source"] != "server" and m["reproduced"] for m in measured)
        assert all(m["rescored_max_gap"] is None for m in measured), "later ids are only a guess"
    assert code != 0 and verdict["decision"] != "serve"


def test_one_server_is_switched_from_arm_to_arm(twin: Twin) -> None:
    said = twin.folder / "switched"
    script = f"printf $GATE_ARM > {shlex.quote(str(twin.mode))}; echo $GATE_ARM >> {shlex.quote(str(said))}"
    try:
        _, verdict, run = twin.check("--switch-cmd", script)
    finally:
        twin.mode.write_text("spec")
    arms = {a["arm"]: a for a in verdict["tasks"][0]["arms"]}
    assert arms["served"]["drafted"] > 0 and not arms["plain"]["drafted"]
    assert arms["served"]["answers"] == arms["plain"]["answers"] == 4
    assert said.read_text().split() == ["plain", "plain", "spec", "spec"], (
        "each arm once more for a new session"
    )
    assert json.loads((run / "manifest.json").read_text())["arms"][0]["endpoint"]["switched"] is True


def test_a_switch_command_that_fails_is_no_verdict_on_the_head(twin: Twin) -> None:
    fails = (
        f"test $GATE_ARM = plain || {shlex.quote(sys.executable)} -c 'import sys; sys.exit(\"no such arm\")'"
    )
    code, verdict, _ = twin.check("--switch-cmd", fails, "--no-state-probe")
    assert (code, verdict["decision"]) == (3, "inconclusive")
    assert any(
        f["code"] == "server-unreachable" and "no such arm" in f["message"] for f in verdict["findings"]
    )
