"""The types of what happened, in the order in which they come to be: Arm, Answer, Comparison, Margin, Grade.

All are frozen and are written to a run directory as they are (JSON lines, `evals.records`). A field that is None was
not measured or cannot be known: never zero, never a pass.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

Method = Literal["plain", "mtp", "control", "draft", "eagle3", "dflash", "prompt_lookup", "served"]
"""mtp, control: the model's head and a permuted one. draft: another model. eagle3, dflash: a draft that reads the
target's hidden states. prompt_lookup: continuations of the text's own last words. served: a server's speculation, of
whatever kind."""
SPECULATIVE: tuple[Method, ...] = ("mtp", "draft", "eagle3", "dflash", "prompt_lookup", "served")
"""Methods that can be what is served; plain and control are yardsticks."""
Finish = Literal["stop", "length", "unknown"]
FailureKind = Literal[
    "crash", "hang", "error", "refused",
    "cut", "stalled", "malformed", "rate_limited", "server_error", "unreachable", "not_api",
]  # fmt: skip
"""What became of an engine (first line) or of a reply over HTTP. The last four say nothing of the model."""

INFRA: frozenset[FailureKind] = frozenset({"rate_limited", "server_error", "unreachable", "not_api"})

IdsFrom = Literal["engine", "server", "tokenizer"]
"""Who knows an answer's ids: the engine, the server, or a tokenizer that read the text again."""

UNKNOWN = "unknown"
"""In place of a digest or a device that can't be known: the weights behind an endpoint."""
Probe = Literal["state", "start", "fill", "whole", "raw"]
"""Why a prompt is asked again: `evals.probes`. whole: not streamed. raw: past a server's template."""

Outcome = Literal[
    "pass", "fail", "crash", "timeout", "killed", "output_limit", "no_program", "truncated", "infra"
]
"""What became of one case. `infra` says nothing of the model; all others but `pass` count as not passed."""


_ARM_AT_FIRST = frozenset(
    {
        "name",
        "method",
        "k",
        "engine",
        "device",
        "target_digest",
        "head_digest",
        "head",
        "properties",
        "scheduler",
        "versions",
        "control_seed",
    }
)
"""Fields that every version's arms have. One that was added since counts only where an arm uses it, so that unfinished
runs, caches and attestations of earlier versions keep their identities."""


class Endpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that speaks OpenAI's API, without any credentials.

    url: its base, e.g. http://127.0.0.1:8000/v1. model: the name to ask for, None for the first that it lists.
    request: further fields of every request. switched: a command of the user's makes it the arm that is asked.
    """

    url: str
    api: Literal["chat", "completions"] = "chat"
    model: str | None = None
    stream: bool = True
    request: dict[str, Any] = {}
    switched: bool = False


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way of decoding: engine, method, K and everything that can change the numerics.

    `identity()` covers every field except `name`: two arms with equal identities must give equal answers.
    Paths are not part of an arm: `target_digest` and `head_digest` (SHA-256 over a manifest of files) are.
    A field that is added has a default, which means what arms without it did.
    """

    name: str
    method: Method
    k: int
    """Drafted tokens per verify step; 0 for plain."""
    engine: str
    device: str
    target_digest: str
    head_digest: str | None
    head: str | None = None
    """The head's name where several are compared (`--head NAME=DIR`)."""
    properties: dict[str, str] = {}
    """OpenVINO properties given to target and draft alike, e.g. INFERENCE_PRECISION_HINT."""
    scheduler: dict[str, int | bool] = {}
    versions: dict[str, str] = {}
    control_seed: int | None = None
    concurrency: int = 1
    """Requests in flight at once."""
    batch_seed: int | None = None
    """Draws which prompts are in flight together (`evals.batches`); None where each is alone."""
    max_ngram: int | None = None
    """Prompt lookup: the longest run of tokens looked for in the text so far."""
    endpoint: Endpoint | None = None
    """Where the arm is served; its digests and device are then UNKNOWN, and k is 0 unless the user named it."""

    def described(self) -> dict[str, Any]:
        """The arm as it is hashed and attested: without fields that versions have added and this arm doesn't use."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        for field in msgspec.structs.fields(self):
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            if field.name not in _ARM_AT_FIRST and getattr(self, field.name) == default:
                del fields[field.name]
        return fields

    def identity(self) -> str:
        """SHA-256 of the arm without its name."""
        fields = self.described()
        del fields["name"]
        return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an answer isn't there. `signal` is the number that ended the engine's process, if one did."""

    kind: FailureKind
    message: str
    signal: int | None = None
    exit_code: int | None = None
    stage: Literal["build", "decode"] = "decode"


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One prompt decoded once by one arm.

    ids: token ids as the engine delivered them, end-of-sequence included where it delivered one.
    text: the engine's own decoding of `ids`, special tokens left out. streamed: the pieces of text as a client of
    the stream would join them, or None. steps: tokens delivered per step (sums to len(ids)).
    accepted, drafted: the runtime's own counters for this answer, None where it has none (0/0 stays 0, 0).
    ttft_s: seconds from the request to the first token. decode_s: seconds from the first token to the last.
    order: position in its arm's session, from 0. probe: why it was asked again ("state", "start"), or that it only kept
    as many requests in flight as the arm has ("fill"), else None. batch: which of its arm's batches it was decoded in,
    from 0; None where it was alone.
    """

    arm: str
    task: str
    prompt: str
    repeat: int
    prompt_sha256: str
    prompt_tokens: int
    max_new_tokens: int
    ids: tuple[int, ...] = ()
    text: str = ""
    streamed: str | None = None
    steps: tuple[int, ...] = ()
    finish: Finish = "unknown"
    accepted: int | None = None
    drafted: int | None = None
    reported_tokens: int | None = None
    """Generated tokens as the engine's own counters bill them."""
    ttft_s: float | None = None
    decode_s: float | None = None
    order: int = 0
    session: int = 0
    probe: Probe | None = None
    batch: int | None = None
    failure: Failure | None = None
    cached: bool = False
    """Taken from an earlier run's answers (`--cache`); it has no times then."""
    ids_from: IdsFrom | None = "engine"
    """None: the ids are not known, only the text is."""
    cuts: tuple[int, ...] = ()
    """Characters of each piece that a server's stream delivered, a piece being a token or more; empty without one."""
    usage_fault: str = ""
    """What the server's own account of tokens contradicts in itself."""
    pause_s: float | None = None
    """Seconds of the longest pause between two pieces of a server's stream; of a reply that came whole, all of it."""
    server: dict[str, str] = {}
    """What the server said of itself with this answer: its model, system_fingerprint, finish_reason."""

    @property
    def pieces(self) -> int | None:
        """Pieces that the stream delivered; None where nothing was streamed."""
        return len(self.cuts) or None

    @property
    def generated(self) -> int | None:
        """Tokens generated: counted where an engine or the server told the ids, else as billed; None if unknown."""
        if self.ids_from in ("engine", "server"):
            return len(self.ids)
        return self.reported_tokens if self.reported_tokens is not None else (len(self.ids) or None)

    @property
    def key(self) -> tuple[str, str, str, int, int, str | None]:
        """What makes an answer unique in a run."""
        return (self.arm, self.task, self.prompt, self.repeat, self.session, self.probe)


class Divergence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where two answers part first: by token (index into ids) and by byte (offset into UTF-8 text).

    A side that ended there has None as its token. `before`, `base_after`, `other_after`: text around the place.
    byte_offset is None where the ids differ but the texts do not.
    """

    token_index: int | None
    byte_offset: int | None
    base_token: int | None
    other_token: int | None
    base_token_text: str
    other_token_text: str
    before: str
    base_after: str
    other_after: str
    tokens_known: bool = True
    """False where only the texts could be compared."""


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens [start, stop) of one side that the other lacks (skipped) or has again (repeated).

    times: how often a repeated unit is said again in a row; start and stop cover all of those.
    """

    start: int
    stop: int
    text: str = ""
    times: int = 1


class Realignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What follows a divergence: does the other answer come back to the base?

    skipped: spans of the base that the other drops while the rest re-aligns (indices into base ids). repeated: spans
    of the other that say again what it has just said (indices into other ids). realigned: share of the base's tokens
    after the divergence that the other has too, in order. bounded: False where the search was cut off.
    replaced: tokens of the base that became others. tail: tokens in step from the last difference to the end.
    Structure is no proof: an honest answer can drop a sentence at a near-tie and go on word for word, so a rule asks
    for rank and gap, or for several spans, as well (`evals.align`).
    """

    skipped: tuple[Span, ...]
    repeated: tuple[Span, ...]
    realigned: float
    bounded: bool = True
    replaced: int = 0
    tail: int = 0


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of an arm beside the base arm's first answer to the same prompt. Facts only.

    tokens_after_stop: ids delivered after the first end-of-sequence id. over_budget: ids beyond max_new_tokens.
    control_tokens: indices of control ids inside the body. stream_matches: the joined stream equals the decoded
    ids, None if not known. repeated_4gram_share: share of 4-grams of ids that occurred before in the answer, 0 to 1.
    """

    arm: str
    base: str
    task: str
    prompt: str
    repeat: int
    identical: bool
    divergence: Divergence | None
    realignment: Realignment | None = None
    tokens_after_stop: int = 0
    over_budget: int = 0
    control_tokens: tuple[int, ...] = ()
    stream_matches: bool | None = None
    repeated_4gram_share: float = 0.0
    base_finish: Finish = "unknown"
    finish: Finish = "unknown"
    cut_tokens: int = 0
    """Tokens of the base, its stop token included, that follow the last of the other's: these are the base's own up to
    there, and no stop token ends them."""
    same_context: bool = True
    """False for a turn of a conversation before which the two had said different things: `divergence` and
    `realignment` are None then, and only the scores can be compared."""


class Margin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base's logits at a divergence: how near was the other arm's token?

    rank: 1 + number of tokens with a strictly higher logit at width 1. gap: nats between the best and the other
    arm's token at width 1 and at the verify width (0 there: the sound target picks that token too at that width).
    movement: how far the gap between both arms' tokens moves between the widths. noise: the same of the two best tokens
    over whole answers, quantile name ("p50", "p90", "p99", "max") to nats. source: the graph it was read from.
    reproduced: the replay gave plain's own tokens up to and with the divergence, and the other arm's before it, so it
    is evidence.
    """

    arm: str
    task: str
    prompt: str
    repeat: int
    token_index: int
    rank: int
    gap: float
    gap_at_verify_width: float | None
    movement: float | None
    noise: dict[str, float]
    source: Literal["paged", "stateful", "server"]
    reproduced: bool
    rescored_max_gap: float | None = None
    """Largest gap of any token of the other arm's answer, re-scored as a whole."""
    rescored_max_gap_at: int | None = None
    rescored_max_rank: int | None = None


class CaseGrade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of one case: `observed` and `expected` are short texts for people, bounded in size."""

    case: str
    outcome: Outcome
    observed: str = ""
    expected: str = ""


class Grade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer judged, case by case, in the order of the task's cases.

    program_sha256 is the digest of the extracted program, or of the text where the judge is constraints; None where
    there is no program, and then `reason` says why.
    """

    arm: str
    task: str
    prompt: str
    repeat: int
    cases: tuple[CaseGrade, ...]
    program_sha256: str | None = None
    reason: str = ""

    @property
    def passed(self) -> int:
        return sum(c.outcome == "pass" for c in self.cases)

    @property
    def infra(self) -> bool:
        """True where trouble of the machine, not of the model, decided a case."""
        return any(c.outcome == "infra" for c in self.cases)


class SandboxReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which sandbox ran the programs, whether its self-test passed, and what it said."""

    name: str
    trusted: bool
    describes: dict[str, str] = {}
    failed_probes: tuple[str, ...] = ()
    remedy: str = ""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run set out to do, written before the first answer; its identity decides whether a run may be resumed.

    planned: number of answers per arm name. model_digest_before: SHA-256 over the model directory's files.
    """

    schema: int
    tool_version: str
    created: str
    model: str
    model_digest_before: str
    arms: tuple[Arm, ...]
    tasks: dict[str, str]
    """task name → digest"""
    prompts: dict[str, tuple[str, ...]]
    """task name → prompt ids decoded"""
    repeats: dict[str, int]
    """arm name → how often each prompt is decoded"""
    policy_digest: str
    environment: dict[str, Any] = {}
    filler_seed: int | None = None
    """Seed of the filler before the prompts of tasks at a depth; None where there are none."""

    def identity(self) -> str:
        """SHA-256 over what must not change between the parts of one run.

        A field that is added goes in only where a run uses it: see `_ARM_AT_FIRST`.
        """
        fields = {
            "schema": self.schema,
            "arms": [(a.name, a.identity()) for a in self.arms],
            "tasks": self.tasks,
            "prompts": self.prompts,
            "repeats": self.repeats,
            "policy": self.policy_digest,
        }
        if self.filler_seed is not None:
            fields["filler_seed"] = self.filler_seed
        return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()


class RunEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a run ended: complete, or cut short and by what. model_digest_after is None where it wasn't taken."""

    complete: bool
    reason: str
    model_digest_after: str | None
    wall_s: float
    engine_s: float
    """Seconds that the engines spent loading and decoding, summed over arms."""
