"""Threat: a CI that reads junit.xml is told other than the exit code says, or can't read the file at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import xmlschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.types import CaseGrade
from gate.types import Finding
from reports.junit import clean, render

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


def read(view: Any) -> ElementTree.Element:
    written = render(view)
    SCHEMA.validate(written.decode("utf-8"))
    return ElementTree.fromstring(written)


def results(root: ElementTree.Element, suite: str) -> dict[str, str]:
    """Case name → failure, error, skipped or passed."""
    (found,) = [s for s in root.iter("testsuite") if s.get("name") == suite]
    return {case.get("name", ""): case[0].tag if len(case) else "passed" for case in found.iter("testcase")}


def with_tasks(run: Any, **changes: Any) -> Any:
    tasks = tuple(msgspec.structs.replace(t, **changes) if t.task == "csv" else t for t in run.verdict.tasks)
    run.verdict = msgspec.structs.replace(run.verdict, tasks=tasks)
    return run


def with_findings(run: Any, *findings: Finding) -> Any:
    run.verdict = msgspec.structs.replace(run.verdict, findings=findings)
    return run


def test_a_lost_case_is_a_failure_and_the_verdict_too(run: Any) -> None:
    root = read(run.view())
    assert results(root, "csv mtp@1 w2") == {
        "case-lost": "failure",
        "answer": "passed",
        "crlf": "passed",
        "bare-lf": "passed",
        "doubled-quote": "failure",
        "embedded-newline": "failure",
        "no-trimming": "passed",
    }
    assert results(root, "mtp-gate") == {
        "verdict": "failure",
        "csv mtp@1": "failure",
        "prose mtp@1": "passed",
    }
    assert set(results(root, "csv mtp@1 w1").values()) == {"passed"}


def test_counts_are_those_of_the_cases(run: Any) -> None:
    root = read(run.view())
    for name, tag in (
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
        ("tests", "testcase"),
    ):
        assert int(root.get(name, "")) == len(list(root.iter(tag))), name
        assert sum(int(s.get(name, "")) for s in root.iter("testsuite")) == len(list(root.iter(tag))), name


def test_suites_of_the_same_name_are_not_merged(run: Any) -> None:
    run.manifest = msgspec.structs.replace(run.manifest, prompts={"csv": ("w1", "w1")})
    names = [suite.get("name") for suite in read(run.view()).iter("testsuite")]
    assert names == ["mtp-gate", "csv mtp@1 w1", "csv mtp@1 w1"]


def test_k_device_index_and_margin_are_properties_of_the_prompts_suite(run: Any) -> None:
    (suite,) = [s for s in read(run.view()).iter("testsuite") if s.get("name") == "csv mtp@1 w2"]
    found = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert found == {"k": "1", "device": "CPU", "index": "63", "margin": "0.31", "margin_reproduced": "true"}


@pytest.mark.parametrize(
    "changes", [{"requirement": "advisory"}, {"decision": "serve"}, {"decision": "inconclusive"}]
)
def test_what_does_not_block_is_no_failure(run: Any, changes: dict[str, Any]) -> None:
    root = read(with_findings(with_tasks(run, **changes)).view())
    assert results(root, "csv mtp@1 w2")["doubled-quote"] == "skipped"


def test_an_advisory_task_that_would_block_is_skipped(run: Any) -> None:
    assert results(read(with_tasks(run, requirement="advisory").view()), "mtp-gate")["csv mtp@1"] == "skipped"


def test_a_waived_case_is_skipped(run: Any) -> None:
    waived = Finding("case-lost", "waived", "waived by name", "csv", "mtp@1", "w2", {"case": "doubled-quote"})
    found = results(read(with_findings(run, waived).view()), "csv mtp@1 w2")
    assert (found["doubled-quote"], found["embedded-newline"]) == ("skipped", "failure")


def test_a_divergence_fault_is_a_failure_and_the_unreadable_an_error(run: Any) -> None:
    fault = Finding("not-a-near-tie", "block", "rank 40", "prose", "mtp@1", "w1", {"rank": 40})
    unread = Finding("plain-unrepeatable", "unreadable", "plain differs from itself", "prose", "plain", None)
    run.verdict = msgspec.structs.replace(run.verdict, decision="inconclusive")
    root = read(with_findings(run, fault, unread).view())
    assert results(root, "prose mtp@1 w1")["not-a-near-tie"] == "failure"
    assert results(root, "mtp-gate")["plain-unrepeatable prose plain"] == "error"
    assert results(root, "mtp-gate")["verdict"] == "error"


def test_engine_and_sandbox_trouble_are_errors(run: Any) -> None:
    grade = next(g for g in run.grades if g.arm == "mtp@1" and g.prompt == "w2" and g.task == "csv")
    cases = tuple(CaseGrade(c.case, "infra", "no sandbox") for c in grade.cases)
    run.grades[run.grades.index(grade)] = msgspec.structs.replace(grade, cases=cases)
    run.answers = [a for a in run.answers if (a.arm, a.task, a.prompt) != ("mtp@1", "prose", "w2")]
    root = read(run.view())
    assert results(root, "csv mtp@1 w2")["crlf"] == "error"
    assert results(root, "prose mtp@1 w2") == {"answer": "error"}


def test_a_case_that_plain_does_not_pass_either_is_no_failure(run: Any) -> None:
    failed = CaseGrade("crlf", "fail", "[]", "[['a']]")
    run.grades = [
        msgspec.structs.replace(g, cases=(failed, *g.cases[1:])) if g.task == "csv" else g for g in run.grades
    ]
    assert results(read(run.view()), "csv mtp@1 w1")["crlf"] == "skipped"


def test_the_arms_first_answer_counts_not_its_repeat(run: Any) -> None:
    first = next(a for a in run.answers if (a.arm, a.task, a.prompt) == ("mtp@1", "csv", "w2"))
    base = next(a for a in run.answers if (a.arm, a.task, a.prompt) == ("plain", "csv", "w2"))
    run.answers.append(msgspec.structs.replace(base, arm="mtp@1", repeat=1))
    run.answers.append(msgspec.structs.replace(first, prompt="w1", repeat=1))
    root = read(run.view())
    assert results(root, "csv mtp@1 w2")["doubled-quote"] == "failure"
    assert results(root, "csv mtp@1 w1")["doubled-quote"] == "passed"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=40))
def test_any_text_fits_into_the_file(make_run: Callable[[], Any], text: str) -> None:
    run = make_run()
    run.grades = [
        msgspec.structs.replace(g, cases=tuple(msgspec.structs.replace(c, observed=text) for c in g.cases))
        for g in run.grades
    ]
    with_findings(run, Finding(text, "block", text, text, text, text))
    read(run.view())
    assert ElementTree.fromstring(
        f"<a>{clean(text).replace('&', '&amp;').replace('<', '&lt;')}</a>"
    ).text == (clean(text) or None)
