"""short-delivery: fewer tokens delivered than billed, than the budget that is said to have ended the answer, or plain's
answer without its end and without a stop token.

A server may bill tokens that nobody sees (thinking), more on some prompts than on others: plain's own bill of the same
text is the measure, and for another text the most that plain bills so.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_high

from gate.delivery import STOP_TOKENS, another_tokenizer, slack, unbilled
from gate.evidence import AnswerFacts, Evidence
from gate.policy import Policy
from gate.rules.base import TaskRule, finding
from gate.types import Finding


def check(evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    counts = another_tokenizer(evidence.plain) is None
    plain = evidence.plain.by_prompt()
    beyond = {prompt: unbilled(a) or 0 for prompt, a in plain.items()}
    for answer in evidence.spec.first():
        if answer.failure is not None:
            continue
        short = unbilled(answer) if counts else None
        base, comparison = plain.get(answer.prompt), evidence.spec.comparisons.get(answer.prompt)
        same = base is not None and base.fingerprint == answer.fingerprint
        allowed = (
            max(beyond[answer.prompt], median_high(beyond.values()))
            if same
            else max(beyond.values(), default=0)
        )
        cut = comparison.cut_tokens if comparison is not None else 0
        if short is not None and short > max(allowed, STOP_TOKENS) + slack(answer):
            message = f"delivers {answer.tokens} tokens and bills {answer.reported_tokens}"
        elif counts and _cut(answer) and not (base and _cut(base)):
            message = (
                f"says that its budget of {answer.max_new_tokens} tokens ended it, "
                f"but {answer.tokens} were delivered"
            )
        elif cut > STOP_TOKENS:
            message = (
                f"delivers the first {answer.tokens} tokens of plain's answer, {cut} fewer, without a stop token, "
                f"and reports finish={answer.finish}"
            )
        else:
            continue
        yield finding(
            evidence,
            RULE.code,
            "block",
            message,
            prompt=answer.prompt,
            tokens=answer.tokens,
            reported_tokens=answer.reported_tokens,
            max_new_tokens=answer.max_new_tokens,
            finish=answer.finish,
        )


def _cut(answer: AnswerFacts) -> bool:
    """Whether it ended at its budget with less than that; not told where neither ids nor a bill is known."""
    known = answer.ids_from is not None or answer.reported_tokens is not None
    return known and answer.finish == "length" and answer.tokens + slack(answer) < answer.max_new_tokens


RULE = TaskRule(
    code="short-delivery",
    severity="block",
    basis="arm",
    summary="Fewer tokens were delivered than the runtime bills or says, or plain's answer without its end.",
    advice="Do not serve this runtime with speculation: clients lose text.",
    check=check,
)
