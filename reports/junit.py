"""junit.xml: one suite for each prompt of a task and arm, its cases in it, and one suite for the run as a whole.

Failure: a case lost where that blocks, or another finding that blocks. Error: what can't be read, an engine or sandbox
that failed. Skipped: waived, of a task that only advises, lost where the policy lets it pass, or not passed by plain
either. The common schema has no properties on a case, so K, device, index and margin stand on the prompt's suite.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Iterator

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from gate.types import Finding, TaskVerdict, Verdict
from reports import words
from reports.view import Pair, PromptView, Side, TaskView, View
from reports.visible import visible

MESSAGE = 2_000
"""Characters of one message."""
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(view: View) -> bytes:
    """The file, in UTF-8."""
    made = JUnitXml("mtp-gate")
    for suite in _suites(view):
        made.append(suite)  # add_testsuite compares it with every other, and merges equal ones
    made.update_statistics()
    written = io.BytesIO()
    made.write(written)
    return written.getvalue()


def _suites(view: View) -> Iterator[TestSuite]:
    yield _whole(view)
    findings: dict[tuple[str | None, str | None, str | None], list[Finding]] = {}
    for reason in view.reasons:
        place = (reason.finding.task, reason.finding.arm, reason.finding.prompt)
        findings.setdefault(place, []).append(reason.finding)
    for task in view.tasks:
        for verdict in task.verdicts:
            for prompt in task.prompts:
                if prompt.base_arm != view.base_of.get(verdict.arm):
                    continue
                mine = findings.get((task.name, verdict.arm, prompt.id), [])
                yield _prompt(view, task, verdict, prompt, mine)


def _suite(view: View, name: str, arm: str | None, cases: Iterable[TestCase]) -> TestSuite:
    suite = TestSuite(clean(name))
    suite.timestamp = clean(view.verdict.created[:19])
    known = next((one for one in view.arms if one.name == arm), None)
    if known is not None:
        suite.add_property("k", str(known.k))
        suite.add_property("device", clean(known.device))
    for case in cases:
        suite.append(case)
    return suite


def _whole(view: View) -> TestSuite:
    """The verdict, each task's verdict, and what was found of no prompt."""
    verdict = view.verdict
    cases = [_case("verdict", "mtp-gate", *_decided(verdict, advisory=False))]
    for found in verdict.tasks:
        name = f"{found.task} {found.arm}"
        cases.append(
            _case(name, "mtp-gate.verdict", *_decided(found, advisory=found.requirement == "advisory"))
        )
    advisory = {(t.task, t.arm) for t in verdict.tasks if t.requirement == "advisory"}
    shown = {(task.name, v.arm, p.id) for task in view.tasks for v in task.verdicts for p in task.prompts}
    for reason in view.reasons:
        finding = reason.finding
        if (finding.task, finding.arm, finding.prompt) not in shown:
            place = " ".join(
                part for part in (finding.code, finding.task, finding.arm, finding.prompt) if part
            )
            cases.append(
                _case(place, "mtp-gate.run", *_result(finding, (finding.task, finding.arm) in advisory))
            )
    return _suite(view, "mtp-gate", None, cases)


def _prompt(
    view: View, task: TaskView, verdict: TaskVerdict, prompt: PromptView, findings: list[Finding]
) -> TestSuite:
    advisory = verdict.requirement == "advisory"
    waived = {f.evidence.get("case") for f in findings if f.severity == "waived"}
    excused = None if verdict.decision == "do_not_serve" and not advisory else verdict.requirement
    classname = f"mtp-gate.{task.name}.{verdict.arm}"
    side, pair = _answer(prompt, verdict.arm)
    cases = [_case(f.code, classname, *_result(f, advisory)) for f in findings if "case" not in f.evidence]
    cases += _cases(side, pair, classname, excused, waived)
    suite = _suite(view, f"{task.name} {verdict.arm} {prompt.id}", verdict.arm, cases)
    divergence = pair.comparison.divergence if pair and pair.comparison else None
    if divergence is not None and divergence.token_index is not None:
        suite.add_property("index", str(divergence.token_index))
    if pair is not None and pair.margin is not None:
        suite.add_property("margin", f"{pair.margin.gap:.6g}")
        suite.add_property("margin_reproduced", str(pair.margin.reproduced).lower())
    return suite


def _answer(prompt: PromptView, arm: str) -> tuple[Side | None, Pair | None]:
    """The arm's answer, and the pair that it is a side of where it isn't the base's."""
    for pair in prompt.pairs:
        if _gave(arm, pair.side):
            return pair.side, pair
    return (prompt.base, None) if prompt.base is not None and _gave(arm, prompt.base) else (None, None)


def _gave(arm: str, side: Side) -> bool:
    """Whether the arm's first answer is this side."""
    return any(who == arm or who.startswith(f"{arm} ×") for who in side.who)


def _cases(
    side: Side | None, pair: Pair | None, classname: str, excused: str | None, waived: Collection[str | None]
) -> Iterator[TestCase]:
    """The arm's answer and its cases. excused: the requirement by which a lost case doesn't block, None if it does."""
    if side is None or side.failure is not None:
        why = (
            f"{side.failure.kind}: {side.failure.message}"
            if side and side.failure
            else "it is not in the run"
        )
        yield _case("answer", classname, Error, f"no answer: {why}", "engine")
        return
    yield _case("answer", classname)
    for case in side.grade.cases if side.grade is not None else ():
        said = words.OUTCOMES[case.outcome]
        said += f", observed {case.observed}" if case.observed else ""
        said += f", expected {case.expected}" if case.expected else ""
        if case.outcome == "infra":
            yield _case(case.case, classname, Error, said, "sandbox")
        elif case.outcome == "pass":
            yield _case(case.case, classname)
        elif pair is None or case.case not in pair.lost:
            yield _case(case.case, classname, Skipped, f"plain doesn't pass it either: {said}", "not lost")
        elif case.case in waived:
            yield _case(case.case, classname, Skipped, f"lost, but waived: {said}", "waived")
        elif excused is not None:
            yield _case(
                case.case,
                classname,
                Skipped,
                f"lost, which the policy lets pass ({excused}): {said}",
                excused,
            )
        else:
            yield _case(case.case, classname, Failure, said, "case lost")


_Kind = type[Failure] | type[Error] | type[Skipped]


def _decided(found: Verdict | TaskVerdict, *, advisory: bool) -> tuple[_Kind | None, str, str]:
    kinds: dict[str, _Kind] = {"do_not_serve": Failure, "inconclusive": Error}
    kind = kinds.get(found.decision)
    return (Skipped if kind and advisory else kind), found.sentence, found.decision


def _result(finding: Finding, advisory: bool) -> tuple[_Kind | None, str, str]:
    kinds: dict[str, _Kind] = {"block": Failure, "unreadable": Error, "waived": Skipped}
    kind = kinds.get(finding.severity)
    return (Skipped if kind is Failure and advisory else kind), finding.message, finding.code


def _case(
    name: str, classname: str, kind: _Kind | None = None, message: str = "", type_: str = ""
) -> TestCase:
    case = TestCase(clean(name), clean(classname))
    if kind is not None:
        case.result = [kind(clean(message[:MESSAGE]) or words.DASH, clean(type_) or words.DASH)]
    return case


def clean(text: str) -> str:
    """Text that XML 1.0 can hold: control characters and lone surrogates as signs, the rest of what it can't hold as
    U+FFFD."""
    return _NOT_XML.sub("\ufffd", visible(text))
