"""All rules, in the order in which their findings tell: could it be read, faults, divergences, quality, worth."""

from __future__ import annotations

from gate.rules import (
    acceptance_collapse,
    acceptance_not_credible,
    acceptance_unknown,
    another_tokenizer,
    answers_missing,
    batch_changes_plain,
    budget_overshoot,
    case_lost,
    case_not_judged,
    case_swapped,
    constraint_lost,
    control_token,
    control_void,
    counter_fault,
    crossed_answers,
    dead_head,
    degenerate_plain,
    degenerate_spec,
    diverged,
    draft_leak,
    engine_crash,
    finish_mismatch,
    harness_unrepeatable,
    inferior,
    model_changed,
    near_tie,
    new_crash,
    not_a_near_tie,
    not_an_api,
    not_exercised,
    not_identical,
    nothing_judged,
    other_context,
    over_delivery,
    plain_drafts,
    plain_floor,
    plain_not_repeated,
    plain_unrepeatable,
    post_stop_leak,
    rate_limited,
    reply_cut,
    reply_delayed,
    reply_malformed,
    reply_stalled,
    run_incomplete,
    sandbox_not_trusted,
    score_worse_than_control,
    served_differs,
    server_changed,
    server_error,
    server_unreachable,
    short_delivery,
    skipped_or_repeated_tokens,
    slower_at_depth,
    slower_than_plain,
    spec_unrepeatable,
    speculation_unseen,
    state_leak,
    stream_mismatch,
    too_few_drafts,
    too_few_pairs,
    unstable_start,
    usage_mismatch,
)
from gate.rules.base import RunRule, TaskRule
from gate.types import Severity

RUN_RULES: tuple[RunRule, ...] = (model_changed.RULE, run_incomplete.RULE, nothing_judged.RULE)

TASK_RULES: tuple[TaskRule, ...] = (
    sandbox_not_trusted.RULE,
    plain_unrepeatable.RULE,
    plain_not_repeated.RULE,
    degenerate_plain.RULE,
    plain_drafts.RULE,
    another_tokenizer.RULE,
    not_an_api.RULE,
    server_unreachable.RULE,
    rate_limited.RULE,
    server_error.RULE,
    server_changed.RULE,
    engine_crash.RULE,
    reply_cut.RULE,
    reply_stalled.RULE,
    reply_malformed.RULE,
    not_exercised.RULE,
    speculation_unseen.RULE,
    counter_fault.RULE,
    acceptance_not_credible.RULE,
    too_few_drafts.RULE,
    answers_missing.RULE,
    case_not_judged.RULE,
    harness_unrepeatable.RULE,
    spec_unrepeatable.RULE,
    post_stop_leak.RULE,
    budget_overshoot.RULE,
    short_delivery.RULE,
    over_delivery.RULE,
    usage_mismatch.RULE,
    finish_mismatch.RULE,
    control_token.RULE,
    stream_mismatch.RULE,
    crossed_answers.RULE,
    reply_delayed.RULE,
    skipped_or_repeated_tokens.RULE,
    served_differs.RULE,
    state_leak.RULE,
    unstable_start.RULE,
    degenerate_spec.RULE,
    dead_head.RULE,
    acceptance_collapse.RULE,
    not_a_near_tie.RULE,
    not_identical.RULE,
    new_crash.RULE,
    case_lost.RULE,
    constraint_lost.RULE,
    inferior.RULE,
    score_worse_than_control.RULE,
    too_few_pairs.RULE,
    plain_floor.RULE,
    slower_at_depth.RULE,
    case_swapped.RULE,
    near_tie.RULE,
    diverged.RULE,
    batch_changes_plain.RULE,
    other_context.RULE,
    draft_leak.RULE,
    control_void.RULE,
    acceptance_unknown.RULE,
    slower_than_plain.RULE,
)

POLICY_CODES: dict[str, tuple[Severity, str, str]] = {
    "waiver-expired": (
        "block",
        "A waiver's last day has passed.",
        "Mend the fault that it covers, or give the waiver a new day and a reason.",
    ),
    "waiver-unused": (
        "block",
        "Nothing used a waiver of the policy.",
        "Take the waiver out of the policy: what it covers no longer happens.",
    ),
}
"""Codes that the policy itself gives rise to: severity, summary, advice (`gate.waivers`)."""

DEPTH_CODES: dict[str, tuple[Severity, str, str]] = {
    "depth-limit": (
        "limit",
        "The task holds up to a depth of context, and at the next one asked it doesn't or can't be judged.",
        "Switch the head off beyond the context length named.",
    ),
}
"""Codes that come from reading a task at several depths as one (`gate.depths`)."""

OTHER_CODES = POLICY_CODES | DEPTH_CODES
"""Codes that no rule of its own gives."""

ORDER: tuple[str, ...] = (
    model_changed.RULE.code,
    *POLICY_CODES,
    *(rule.code for rule in TASK_RULES),
    *DEPTH_CODES,
    run_incomplete.RULE.code,
    nothing_judged.RULE.code,
)
"""Every reason code, most telling first: what a run lacks is told after what made it lack it."""

SEVERITY_OF: dict[str, Severity] = {
    **{rule.code: rule.severity for rule in RUN_RULES},
    **{rule.code: rule.severity for rule in TASK_RULES},
    **{code: severity for code, (severity, _, _) in OTHER_CODES.items()},
}

ADVICE: dict[str, str] = {
    **{rule.code: rule.advice for rule in RUN_RULES},
    **{rule.code: rule.advice for rule in TASK_RULES},
    **{code: advice for code, (_, _, advice) in OTHER_CODES.items()},
}
