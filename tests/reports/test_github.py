"""Threat: a model's words become a workflow command, or an annotation is lost among more than GitHub shows."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.types import Finding, Verdict
from reports.github import MOST, commands

COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


def unescape(text: str) -> str:
    for escape, char in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(escape, char)
    return text


def test_the_verdict_first_then_what_decided(run: Any) -> None:
    found = [COMMAND.fullmatch(line).groups() for line in commands(run.verdict)]  # type: ignore[union-attr]
    assert [(level, unescape(title)) for level, title, _ in found] == [
        ("error", "mtp-gate: Do not serve"),
        ("error", "case-lost csv mtp@1 w2"),
        ("error", "new-crash csv mtp@1 w2"),
        ("notice", "near-tie prose mtp@1 w1"),
    ]


@given(st.text(st.sampled_from("a:,%\r\n\x00\u2028"), min_size=1, max_size=30))
def test_each_is_one_line_that_says_what_the_finding_says(text: str) -> None:
    finding = Finding(text, "block", text + "::set-output name=x::y", text, text, text)
    verdict = _verdict((finding,))
    lines = commands(verdict)
    assert len(lines) == 2
    for line in lines:
        assert COMMAND.fullmatch(line)
        assert len(line.splitlines()) == 1


def test_percent_is_escaped_first() -> None:
    (_, line) = commands(_verdict((Finding("c", "block", "93.9 % (%0A)"),)))
    assert line.endswith("::93.9 %25 (%250A)")


@pytest.mark.parametrize(
    ("severity", "level"), [("block", "error"), ("limit", "warning"), ("note", "notice")]
)
def test_no_more_than_github_shows_and_the_rest_is_counted(severity: Any, level: str) -> None:
    verdict = _verdict(tuple(Finding("c", severity, f"m{i}") for i in range(50)))
    mine = [line for line in commands(verdict) if line.startswith(f"::{level} ")]
    assert len(mine) == MOST
    listed = sum(bool(re.search(r"::m\d+$", line)) for line in mine)
    assert f"::{50 - listed} more like these" in mine[-1]


def _verdict(findings: tuple[Finding, ...]) -> Verdict:
    return Verdict(
        schema=1,
        tool_version="0",
        created="2026-11-30T00:00:00Z",
        decision="do_not_serve",
        sentence="s",
        what_to_do="w",
        reasons=(),
        worth_it=None,
        k=(1,),
        model="m",
        target_digest="a",
        head_digests={},
        policy_digest="b",
        manifest_identity="c",
        tasks=(),
        findings=findings,
    )


def test_the_level_of_the_whole_follows_the_decision(run: Any) -> None:
    levels = {
        decision: commands(msgspec.structs.replace(run.verdict, decision=decision))[0].split()[0]
        for decision in ("serve", "serve_with_limits", "do_not_serve", "inconclusive")
    }
    assert list(levels.values()) == ["::notice", "::warning", "::error", "::error"]
