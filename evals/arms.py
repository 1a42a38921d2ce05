"""Arms: the ways of decoding that a run compares, with everything that can change the numerics written down.

Two arms of one run share device, properties and scheduler settings; they differ in method, K and head.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from evals.control import ControlHead
from evals.digest import ModelDigests
from evals.drafters import MAX_NGRAM, Drafter
from evals.engines import GENAI
from evals.types import Arm, Method

MAX_K = 64

DEFAULT_SCHEDULER: dict[str, int | bool] = {
    "cache_size": 1,
    "enable_prefix_caching": False,
    "max_num_batched_tokens": 4096,
}
"""cache_size in GiB. MTP wants prefix caching off; prompts longer than a batch are split."""

SCHEDULER_KEYS: dict[str, type] = {
    "cache_size": int,
    "num_kv_blocks": int,
    "num_linear_attention_blocks": int,
    "cache_interval_multiplier": int,
    "max_num_batched_tokens": int,
    "max_num_seqs": int,
    "dynamic_split_fuse": bool,
    "enable_prefix_caching": bool,
}

LABELS: dict[Method, str] = {"prompt_lookup": "lookup"}
"""What an arm's name begins with, where that isn't its method."""

_KEY = re.compile(r"[A-Z][A-Z0-9_]{0,99}\Z")
_DEVICE = re.compile(r"[A-Za-z][A-Za-z0-9_.:,()-]{0,99}\Z")
_BOOL = {"true": True, "false": False}


class ArmError(ValueError):
    """Settings that make no arm; the message says what was expected, what was found, and what to do."""


def parse_property(text: str) -> tuple[str, str]:
    """KEY=VALUE of `--ov`, an OpenVINO property, e.g. KV_CACHE_PRECISION=f32. Raises ArmError.

    Only the form is checked here: which keys and values a device takes is the engine's to say (`engine.prepare`).
    """
    key, equals, value = text.partition("=")
    value = value.strip()
    if not equals or not _KEY.match(key.strip()) or not value or len(value) > 200 or not value.isprintable():
        raise ArmError(
            f"--ov {text[:200]!r}: expected KEY=VALUE with an OpenVINO property in capitals, e.g. "
            "INFERENCE_PRECISION_HINT=f32 or KV_CACHE_PRECISION=f32."
        )
    return key.strip(), value


def parse_scheduler(text: str) -> tuple[str, int | bool]:
    """KEY=VALUE of `--scheduler`, a field of openvino-genai's SchedulerConfig. Raises ArmError."""
    key, _, value = text.partition("=")
    kind = SCHEDULER_KEYS.get(key.strip())
    value = value.strip().lower()
    if kind is bool and value in _BOOL:
        return key.strip(), _BOOL[value]
    if kind is int and re.fullmatch(r"[0-9]{1,9}", value):
        return key.strip(), int(value)
    if kind is None:
        raise ArmError(
            f"--scheduler {text[:200]!r}: expected KEY=VALUE with one of {', '.join(SCHEDULER_KEYS)}."
        )
    wanted = "true or false" if kind is bool else "a whole number from 0"
    raise ArmError(
        f"--scheduler {text[:200]!r}: expected {key.strip()} to be {wanted}, found {value[:40]!r}."
    )


def build_arms(
    digests: ModelDigests,
    *,
    ks: Iterable[int] = (1,),
    device: str = "CPU",
    properties: Mapping[str, str] | None = None,
    scheduler: Mapping[str, int | bool] | None = None,
    versions: Mapping[str, str] | None = None,
    controls: Sequence[ControlHead] = (),
    heads: Mapping[str, str] | None = None,
    drafter: Drafter | None = None,
    max_ngram: int | None = None,
    engine: str = GENAI,
) -> tuple[Arm, ...]:
    """Plain, then mtp@K for every K, then control@K for every control head (control@K:SEED from the second on).

    heads: name → digest of further heads of the same target (arms mtp@K:NAME); without them the directory's own head
    is used. drafter, max_ngram: draft@K (or eagle3@K, dflash@K) and lookup@K take the place of the mtp arms. engine: of
    all arms (`evals.engines`). Raises ArmError for K < 1 (openvino-genai would silently decode with 1), a device or
    settings out of form, and prefix caching (it makes plain unrepeatable on linear attention, openvino model_server
    issue 4376).
    """
    depths = tuple(dict.fromkeys(ks))
    check_settings(depths, device, scheduler or {})

    def arm(
        method: Method,
        k: int,
        head: str | None = None,
        head_digest: str | None = None,
        seed: int | None = None,
        ngram: int | None = None,
    ) -> Arm:
        label = LABELS.get(method, method)
        return Arm(
            name=label if k == 0 else f"{label}@{k}" + (f":{head}" if head else ""),
            method=method,
            k=k,
            engine=engine,
            device=device,
            target_digest=digests.target,
            head_digest=head_digest,
            head=head,
            properties=dict(properties or {}),
            scheduler={**DEFAULT_SCHEDULER, **(scheduler or {})},
            versions=dict(versions or {}),
            control_seed=seed,
            max_ngram=ngram,
        )

    arms = [arm("plain", 0)]
    if drafter is not None:
        arms += [arm(drafter.kind, k, None, drafter.digest) for k in depths]
    if max_ngram is not None:
        arms += [arm("prompt_lookup", k, ngram=max_ngram) for k in depths]
    if drafter is None and max_ngram is None:
        named = list(heads.items()) if heads else [(None, digests.head)]
        arms += [arm("mtp", k, head, digest) for head, digest in named for k in depths]
    for place, control in enumerate(controls):
        label = f"{control.seed}" if place else None
        arms += [arm("control", k, label, control.digest, control.seed) for k in depths]
    return tuple(arms)


def drafter_paths(arms: Iterable[Arm], drafter: Drafter | None) -> dict[str, Path]:
    """Arm's name → directory that drafts for it, for `Plan.heads`."""
    return {} if drafter is None else {arm.name: drafter.path for arm in arms if arm.method == drafter.kind}


def control_paths(arms: Iterable[Arm], controls: Iterable[ControlHead]) -> dict[str, Path]:
    """Control arm's name → directory of its head, for `Plan.heads`."""
    paths = {control.seed: control.path for control in controls}
    return {arm.name: paths[arm.control_seed] for arm in arms if arm.control_seed is not None}


def check_drafting(
    draft: Path | None, lookup: bool, max_ngram: int | None, *, heads: bool, leak: bool
) -> int | None:
    """Refuse ways of speculating that don't go together; tokens that prompt lookup matches at most, None without it.

    Raises ArmError.
    """
    if (draft is not None or lookup) and (heads or leak):
        other = "--head" if heads else "--draft-leak"
        ours = "--draft" if draft is not None else "--prompt-lookup"
        raise ArmError(
            f"{ours} with {other}: expected one way of speculating. Gate the head in a run of its own."
        )
    if max_ngram is not None and not lookup:
        raise ArmError(
            "--max-ngram: expected --prompt-lookup beside it, found none. Add it, or leave this out."
        )
    return (max_ngram or MAX_NGRAM) if lookup else None


def check_settings(depths: tuple[int, ...], device: str, scheduler: Mapping[str, int | bool]) -> None:
    """Refuse what can be refused before anything is looked at. Raises ArmError."""
    if not depths:
        raise ArmError("--k: expected at least one number of drafted tokens, found none.")
    for k in depths:
        if not 1 <= k <= MAX_K:
            raise ArmError(
                f"--k {k}: expected a number of drafted tokens from 1 to {MAX_K}. The plain arm is decoded in any "
                "case; K = 0 would be run as K = 1 by the engine."
            )
    if not _DEVICE.match(device):
        raise ArmError(f"--device {device[:100]!r}: expected an OpenVINO device such as CPU, GPU or GPU.0.")
    if scheduler.get("enable_prefix_caching"):
        raise ArmError(
            "--scheduler enable_prefix_caching=true: expected false. With linear attention the plain arm then answers "
            "differently on repeats, and nothing can be said of speculation."
        )
