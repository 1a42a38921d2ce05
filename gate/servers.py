"""What a verdict allows, in the option names of the servers that serve such heads.

OpenVINO Model Server and arcint: checked against their documentation and not run (sources below); llama.cpp: its server
is started with these options by the tests. What a server has no option for is said in a comment, never left out.

Sources: model_server `src/llm/llm_calculator.proto` and `demos/continuous_batching/speculative_decoding` (2026.4);
arcint's usage text (`llm.txt`, 0.5.12) and `docs/mtp-head-card.md`; `llama-server --help` (build 10434).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import msgspec

from evals.engines import GENAI
from evals.types import UNKNOWN, Arm
from gate.allowed import Allowed

NOT_RUN = "checked against its documentation, not run"
STARTED = "options checked by starting its server with them"


class ServerConfig(msgspec.Struct, frozen=True):
    """One server's configuration. file: the name it is meant to have."""

    server: str
    file: str
    text: str
    head: bool
    """Whether it serves with the head: never where the verdict doesn't allow that or the server can't keep to it."""


class _Variable(str):
    """A word of a script that its user fills in; all others are quoted."""


def ovms(allowed: Allowed, model: str) -> ServerConfig:
    """graph.pbtxt of an OpenVINO Model Server, to lie in the model directory."""
    arm, notes = allowed.arm, []
    options: dict[str, str | int | bool] = {"models_path": "./"}
    if arm.device != UNKNOWN:
        options["device"] = arm.device
    if allowed.head and arm.method not in ("mtp", "draft"):
        notes.append(_left_off(arm))
    on = allowed.head and arm.method in ("mtp", "draft")
    if on:
        options["draft_models_path"] = "./" if arm.method == "mtp" and arm.head is None else "./draft"
        options["draft_device"] = arm.device
        if options["draft_models_path"] == "./draft":
            notes.append("put the head's directory beside this file as ./draft")
        notes += [
            f'K: set "num_assistant_tokens": {arm.k} in generation_config.json beside this file; the server has no '
            "option for it, its own default is 5, and a request that names another K gets that",
            "with a head requests must be greedy (temperature 0) and give max_tokens",
        ]
        if allowed.depth is not None:
            notes.append(
                f"depth: no option on CPU and GPU bounds a prompt: keep requests to {allowed.depth} tokens of context "
                "in front of the server"
            )
    for key in ("cache_size", "max_num_batched_tokens", "dynamic_split_fuse", "cache_interval_multiplier"):
        if key in arm.scheduler:
            options[key] = arm.scheduler[key]
    if on and allowed.concurrency is not None:
        options["max_num_seqs"] = allowed.concurrency
    options["enable_prefix_caching"] = False
    plugin = {k: v for k, v in sorted(allowed.in_force.items()) if k in PLUGIN_CONFIG}
    options["plugin_config"] = json.dumps(plugin)
    body = ",\n".join(f"          {key}: {_pbtxt(value)}" for key, value in options.items())
    head = _comments(allowed, "OpenVINO Model Server", NOT_RUN, notes, "openvino-genai")
    run = f"# run: ovms --rest_port 8000 --model_name NAME --model_path {shlex.quote(one_line(model))}\n"
    return ServerConfig("ovms", "graph.pbtxt", head + run + GRAPH.replace("OPTIONS", body), on)


PLUGIN_CONFIG = ("KV_CACHE_PRECISION", "INFERENCE_PRECISION_HINT", "DYNAMIC_QUANTIZATION_GROUP_SIZE")
GRAPH = """\
input_stream: "HTTP_REQUEST_PAYLOAD:input"
output_stream: "HTTP_RESPONSE_PAYLOAD:output"
node: {
  name: "LLMExecutor"
  calculator: "HttpLLMCalculator"
  input_stream: "LOOPBACK:loopback"
  input_stream: "HTTP_REQUEST_PAYLOAD:input"
  input_side_packet: "LLM_NODE_RESOURCES:llm"
  output_stream: "LOOPBACK:loopback"
  output_stream: "HTTP_RESPONSE_PAYLOAD:output"
  input_stream_info: { tag_index: 'LOOPBACK:0', back_edge: true }
  node_options: {
      [type.googleapis.com / mediapipe.LLMCalculatorOptions]: {
OPTIONS
      }
  }
  input_stream_handler {
    input_stream_handler: "SyncSetInputStreamHandler",
    options {
      [mediapipe.SyncSetInputStreamHandlerOptions.ext] { sync_set { tag_index: "LOOPBACK:0" } }
    }
  }
}
"""


def arcint(allowed: Allowed, model: str) -> ServerConfig:
    """A shell script that starts arcint. Its OpenVINO engine drafts one token a pass with an MTP head."""
    arm, notes = allowed.arm, []
    command = ["arcint", "--model", one_line(model), "--prefix-cache-mib", "0"]
    if arm.device != UNKNOWN:
        command += ["--device", one_line(arm.device)]
    on = allowed.head and arm.method == "mtp" and arm.k == 1
    if allowed.head and arm.method != "mtp":
        notes.append(_left_off(arm))
    elif allowed.head and not on:
        notes.append(
            f"K: arcint drafts one token a pass, and a verdict holds for its K alone ({arm.k}): the head is left off"
        )
    command += ["--mtp", "on" if on else "off"]
    if on:
        command += ["--temp", "0", "--parallel", str(allowed.concurrency or 1)]
        if (
            arm.engine == GENAI
        ):  # it knows the exported layer alone; arcint takes a reconstructed one where it finds it
            command += ["--mtp-layer", "exported"]
            notes.append(
                "the exported layer has no lm_head of its own and arcint needs one: openvino_mtp_lm_head beside it, as "
                "`gate head convert` writes it"
            )
        if arm.head is not None:
            notes.append(f"the head {one_line(arm.head)} must lie in the model directory")
        if allowed.depth is not None:
            command += ["--n-ctx", str(allowed.depth)]
            notes.append(
                "depth: kept for all requests by --n-ctx; serve longer ones without the head elsewhere"
            )
    kv = allowed.in_force.get("KV_CACHE_PRECISION", "")
    if kv in ("f16", "u8", "i8", "u4", "i4"):
        command += ["--paged-kv", kv]
    elif kv:
        notes.append(f"KV precision: arcint has no {one_line(kv)}, which the verdict holds for")
    if arm.device != UNKNOWN and not arm.device.upper().startswith("GPU"):
        notes.append(f"device: arcint is made for Intel GPUs; the verdict holds for {one_line(arm.device)}")
    text = _comments(allowed, "arcint", NOT_RUN, notes, "arcint")
    return ServerConfig("arcint", "arcint.sh", _script(text, command), on)


def llama_cpp(allowed: Allowed, model: str) -> ServerConfig:
    """A shell script that starts llama.cpp's server on a GGUF of the same model."""
    arm, notes = allowed.arm, []
    types = {"mtp": "draft-mtp", "draft": "draft-simple"}
    on = allowed.head and arm.method in types
    if allowed.head and not on:
        notes.append(_left_off(arm))
    command = [
        "llama-server",
        "--model",
        _Variable('"$MODEL"'),
        "--host",
        "127.0.0.1",
        "--port",
        _Variable('"${PORT:-8080}"'),
    ]
    command += ["--spec-type", types[arm.method] if on else "none"]
    if on:
        slots = allowed.concurrency or 1
        command += ["--spec-draft-n-max", str(arm.k), "--parallel", str(slots)]
        if arm.method == "draft":
            command += ["--spec-draft-model", _Variable('"$DRAFT"')]
            notes.append("DRAFT: the draft model's GGUF")
        if allowed.depth is not None:
            command += ["--no-kv-unified", "--ctx-size", str(allowed.depth * slots)]
            notes.append(
                "depth: kept for all requests by --ctx-size, which the slots share evenly; serve longer ones without "
                "the head elsewhere"
            )
    kv = allowed.in_force.get("KV_CACHE_PRECISION", "")
    if kv in ("f32", "f16", "bf16"):
        command += ["--cache-type-k", kv, "--cache-type-v", kv]
    elif kv:
        notes.append(
            f"KV precision: no {one_line(kv)} here, which the verdict holds for (q8_0 is another format)"
        )
    notes.append(f"MODEL: a GGUF of {one_line(model)}; its weights are not the bytes that were gated")
    text = _comments(allowed, "llama.cpp", STARTED, notes, "llama.cpp")
    return ServerConfig("llama.cpp", "llama-server.sh", _script(text, command), on)


SERVERS: dict[str, Callable[[Allowed, str], ServerConfig]] = {
    "ovms": ovms,
    "arcint": arcint,
    "llama.cpp": llama_cpp,
}


def _left_off(arm: Arm) -> str:
    if arm.method == "served":
        return (
            "the arm was gated as its server runs it, whose options the run doesn't know: leave them as they are, "
            "within what stands above. The head is left off here"
        )
    return f"no options here for the method {arm.method}: the head is left off"


def _comments(allowed: Allowed, server: str, checked: str, notes: list[str], engine: str) -> str:
    """The comment lines at the top: what is served and why, and what the server can't be held to."""
    load = "" if allowed.concurrency is None else f", at most {allowed.concurrency} requests in flight"
    depth = "" if allowed.depth is None else f", up to {allowed.depth} tokens of context"
    what = f"{allowed.arm.name}, K = {allowed.arm.k}{load}{depth}" if allowed.head else "head off"
    lines = [
        f"{server}, by `gate serve-config` ({checked})",
        f"verdict: {what}: {allowed.why}",
        *(f"note: {note}" for note in notes),
    ]
    if allowed.head and engine != allowed.arm.engine:
        lines.append(
            f"note: judged on {allowed.decoded_with}, and {server} is another engine: gate what it serves before you "
            "rely on it"
        )
    elif allowed.head:
        lines.append(f"note: judged on {allowed.decoded_with}; the verdict holds for that version")
    return "".join(f"# {one_line(line)}\n" for line in lines)


def _script(comments: str, command: list[str]) -> str:
    words = [word if isinstance(word, _Variable) else shlex.quote(word) for word in command]
    return f"#!/bin/sh\n{comments}exec {' '.join(words)}\n"


def _pbtxt(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else json.dumps(one_line(value))


def one_line(text: str) -> str:
    """A run's or a user's text, so that it can't end a comment or a line: control characters as spaces."""
    return "".join(c if c.isprintable() else " " for c in text)
