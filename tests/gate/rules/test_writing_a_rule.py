"""The threat: a guide whose example doesn't work."""

from __future__ import annotations

import re
from pathlib import Path

from gate.rules import registry

GUIDE = Path(__file__).parents[3] / "docs" / "writing-a-rule.md"


def test_the_guides_rule_and_its_test_run(scene, monkeypatch):
    rule, test = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    space = {"__name__": "gate.rules.lonely_end"}
    exec(compile(rule, "lonely_end.py", "exec"), space)
    monkeypatch.setattr("gate.verdict.TASK_RULES", (*registry.TASK_RULES, space["RULE"]))
    monkeypatch.setattr("gate.verdict.ORDER", (*registry.ORDER, "lonely-end"))
    monkeypatch.setitem(registry.SEVERITY_OF, "lonely-end", "note")
    exec(compile(test, "test_lonely_end.py", "exec"), space)
    space["test_an_arm_that_never_delivers_two_tokens"](scene)
