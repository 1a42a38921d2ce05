"""Measures on how many prompts plain and mtp differ: prompts drawn by seed from the built-in tasks' wordings.

usage: rate_sample.py MODELDIR [--prompts 100] [--seed 1] [--k 1] [--ov KEY=VALUE ...]
needs: openvino-genai, jinja2

Prompt n is about task n modulo four (csv, iso8601, prose, count), its wording drawn by sample_data.wording.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from random import Random
from typing import Any

import openvino_genai
import sample_data

TASKS = ("csv", "iso8601", "prose", "count")


def pipeline(folder: str, properties: dict[str, str], head: bool) -> Any:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.enable_prefix_caching, scheduler.max_num_batched_tokens = 1, False, 4096
    options: dict[str, Any] = dict(properties)
    if head:
        options["draft_model"] = openvino_genai.draft_model(folder, "CPU", **properties)
    return openvino_genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", options)


def decode(engine: Any, prompt: str, k: int) -> tuple[list[int], int, int]:
    """Return the answer's token ids, and how many drafts were accepted and made (0, 0 for plain: k = 0)."""
    ids: list[int] = []

    class Recorder(openvino_genai.StreamerBase):  # type: ignore[misc]
        def write(self, tokens: int | list[int]) -> Any:
            ids.extend(tokens if isinstance(tokens, list) else [tokens])
            return openvino_genai.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.do_sample, config.apply_chat_template = 480, False, False
    config.set_eos_token_id(engine.get_tokenizer().get_eos_token_id())
    if k:
        config.num_assistant_tokens = k
    metrics = engine.generate([sample_data.chat(prompt)], [config], Recorder())[0].extended_perf_metrics
    if not k or metrics is None:
        return ids, 0, 0
    return ids, metrics.get_num_accepted_tokens(), metrics.get_num_draft_tokens()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--k", type=int, default=1)
    parser.add_argument("--ov", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    properties = dict(pair.split("=", 1) for pair in args.ov)
    r = Random(args.seed)
    asked = [(TASKS[n % 4], sample_data.wording(r, TASKS[n % 4])) for n in range(args.prompts)]
    plain, mtp = pipeline(args.model, properties, False), pipeline(args.model, properties, True)
    differ: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    drafted: Counter[str] = Counter()
    for task, prompt in asked:
        base = decode(plain, prompt, 0)[0]
        ids, taken, made = decode(mtp, prompt, args.k)
        differ[task] += ids != base
        accepted[task] += taken
        drafted[task] += made
    print(f"seed {args.seed}: {differ.total()} of {len(asked)} prompts differ:", dict(differ))
    print("acceptance:", {task: round(accepted[task] / drafted[task], 3) for task in TASKS if drafted[task]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
