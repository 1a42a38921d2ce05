"""The threat: a load that only a stub bears. llama.cpp's own server, its slots and its batching, with prompts of
unequal length in flight together: every load has its verdict, its acceptance and its speed, and nothing is mixed up.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gate.cli import gate
from tests.fixtures.served import POLICY, lay_task, llama_servers

pytestmark = [pytest.mark.timeout(600)]

LONG = ", ".join(["one two three four"] * 40)
PROMPTS = f"""[[prompt]]
id = "long"
text = "Copy this exactly: {LONG}"

[[prompt]]
id = "foxes"
text = "Copy this exactly: {", ".join(["red fox, blue cat"] * 4)}"

[[prompt]]
id = "rain"
text = "Write a poem about rain. Begin every line with: The rain"

[[prompt]]
id = "hello"
text = "Say hello ten times."
"""


def test_slots_of_a_real_server_are_gated_by_load(tmp_path: Path) -> None:
    task = lay_task(tmp_path / "short")
    (task / "prompts.toml").write_text(PROMPTS)
    settings = (task / "task.toml").read_text().replace("max_new_tokens = 48", "max_new_tokens = 16")
    (task / "task.toml").write_text(settings)
    (tmp_path / "gate.toml").write_text(POLICY.replace("min_drafts = 8", "min_drafts = 4"))
    with llama_servers("plain", "spec", slots=4) as (plain, spec):
        urls = ["--plain-url", f"http://127.0.0.1:{plain}", "--spec-url", f"http://127.0.0.1:{spec}"]
        argv = ["check", *urls, "--concurrency", "2", "--concurrency", "4", "--tasks", str(task), "--task", "short",
                "--policy", str(tmp_path / "gate.toml"), "--out", str(tmp_path / "run"), "-q"]  # fmt: skip
        gate.main(argv, standalone_mode=False)
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    tasks = {t["arm"]: t for t in verdict["tasks"]}
    assert set(tasks) == {"served/n2", "served/n4"}
    assert not {f["code"] for f in verdict["findings"] if f["severity"] == "block"}, verdict["findings"]
    # kernels whose sums depend on who else is in the batch may leave a load unread, never more
    assert set(verdict["reasons"]) <= {"plain-unrepeatable", "spec-unrepeatable", "state-leak"}
    assert (verdict["decision"] == "serve") == (not verdict["reasons"])
    for load, judged in tasks.items():
        arms = {a["arm"]: a for a in judged["arms"]}
        assert arms[load]["drafted"] > 0 and judged["speed_ratio"] > 0
        assert arms[load]["answers"] == arms[load.replace("served", "plain")]["answers"] == 8
    answers = [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    lengths = {a["prompt"]: a["prompt_tokens"] for a in answers}
    assert lengths["long"] > 4 * lengths["hello"]
    by_batch: dict[tuple[str, int], set[str]] = {}
    for a in answers:
        by_batch.setdefault((a["arm"], a["batch"]), set()).add(a["prompt"])
    assert {len(prompts) for (arm, _), prompts in by_batch.items() if arm.endswith("/n4")} == {4}
