"""Which engine decodes: openvino-genai takes optimum-intel's layout of a head, ours takes both.

All arms of a run are of one engine, so that what is compared is speculation and not two runtimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evals.model_dir import HeadLayout, ModelDirError

GENAI = "openvino-genai"
SPLIT = "openvino-split"
ENGINES = (GENAI, SPLIT)

_UNKNOWN_TO_SPLIT = ("num_linear_attention_blocks", "cache_interval_multiplier")


def choose_engine(named: str | None, layouts: Iterable[HeadLayout | None]) -> str:
    """The engine that the user named, or the one that decodes every head of a run (its layouts).

    Raises ModelDirError for openvino-genai with a head in the split layout.
    """
    split = "split" in layouts
    if named == GENAI and split:
        raise ModelDirError(
            f"--engine {GENAI}: it has no way to decode a head in the split layout, and one was given. Leave --engine "
            f"out ({SPLIT} decodes both layouts), or gate the exported layout."
        )
    return named or (SPLIT if split else GENAI)


def require_engine(
    engine: str,
    *,
    device: str = "CPU",
    scheduler: Mapping[str, int | bool] | None = None,
    concurrency: Iterable[int] = (1,),
    own_head: bool = True,
    picture: str | None = None,
) -> None:
    """Raise ModelDirError for what openvino-split can't do.

    concurrency: requests in flight. own_head: an MTP head is what drafts. picture: a prompt that shows one, None where
    none does.
    """
    if engine != SPLIT:
        return
    if not device.upper().startswith("CPU"):
        raise ModelDirError(
            f"--device {device}: expected CPU, where {SPLIT} keeps its caches. On other devices gate the exported "
            f"layout with {GENAI}, or a server that has this head."
        )
    for key in _UNKNOWN_TO_SPLIT:
        if key in (scheduler or {}):
            raise ModelDirError(
                f"--scheduler {key}: {SPLIT} has no such setting; it takes cache_size, num_kv_blocks and "
                "max_num_batched_tokens. Leave it out."
            )
    if max(concurrency) > 1:
        raise ModelDirError(
            f"--concurrency {max(concurrency)}: expected 1, since {SPLIT} decodes one request at a time. Gate the "
            f"exported layout with {GENAI}."
        )
    if not own_head:
        raise ModelDirError(
            f"--engine {SPLIT}: it drafts with MTP heads only. Leave --engine out: {GENAI} decodes draft models and "
            "prompt lookup."
        )
    if picture is not None:
        raise ModelDirError(
            f"the prompt {picture} shows a picture, and {SPLIT} decodes text only. Name the tasks without pictures "
            "with --task."
        )
