"""The threat: a reference that says something else than the code does."""

from __future__ import annotations

import re
from pathlib import Path

from gate.policy import Thresholds
from gate.policy_docs import policy_reference
from gate.rules.registry import ORDER, OTHER_CODES, SEVERITY_OF

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_current():
    """`python -m gate.policy_docs docs/policy.md` writes it again."""
    assert (DOCS / "policy.md").read_text("utf-8") == policy_reference()


def test_every_threshold_and_every_code_is_in_it():
    text = policy_reference()
    for name in Thresholds.__struct_fields__:
        assert re.search(rf"\*\*`{name}`\*\* = \S+ \(.+\)\. \w", text), name
    for code in ORDER:
        assert f"| `{code}` | {SEVERITY_OF[code]} | " in text


def test_no_code_is_listed_twice_and_each_has_its_own_file():
    assert len(ORDER) == len(set(ORDER))
    files = {p.stem.replace("_", "-") for p in (DOCS.parent / "gate" / "rules").glob("*.py")}
    assert files - {"base", "registry", "--init--"} == set(ORDER) - set(OTHER_CODES)
