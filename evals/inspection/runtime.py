"""The runtime model: what a device makes of a graph when it compiles it. In a child, since plug-ins crash.

The CPU plug-in turns "compute every expert, then choose" into a gathered product (GatherMatmul) where it recognises the
pattern, and leaves batched products where it doesn't. Only the compiled model shows which.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from evals.engine.child import child_environment, essence
from evals.model_dir import ModelDirError

MAX_REPLY = 1 << 20
_GATHERED = re.compile(r"gather_?matmul|moe", re.IGNORECASE)


class _Order(msgspec.Struct, frozen=True):
    graph: str
    device: str


class _Reply(msgspec.Struct, frozen=True):
    """kinds: how many operations of each kind the device runs. refused: what it said instead."""

    kinds: dict[str, int] = {}
    refused: str = ""


def experts_read(graph: Path, device: str, timeout_s: float = 300.0) -> Literal["all", "chosen"]:
    """Whether a device computes all experts of a graph or gathers those chosen.

    Raises ModelDirError where the device refuses the graph, crashes, or takes over timeout_s.
    """
    kinds = runtime_kinds(graph, device, timeout_s)
    return "chosen" if any(_GATHERED.search(kind) for kind in kinds) else "all"


def runtime_kinds(graph: Path, device: str, timeout_s: float = 300.0) -> dict[str, int]:
    """Kind of operation → how often the compiled graph has it. Raises ModelDirError (see experts_read)."""
    with tempfile.TemporaryFile() as reply:
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", "evals.inspection.runtime", str(reply.fileno())],
                input=msgspec.json.encode(_Order(str(graph), device)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(reply.fileno(),),
                env=child_environment(),
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ModelDirError(
                f"{graph}: --device {device} did not compile it within {timeout_s:.0f} s."
            ) from None
        reply.seek(0)
        data = reply.read(MAX_REPLY)
    try:
        answer = msgspec.json.decode(data, type=_Reply)
    except msgspec.DecodeError:
        last = essence(ended.stdout[-2000:].decode("utf-8", "replace"))
        raise ModelDirError(
            f"{graph}: --device {device} ended with code {ended.returncode}: {last}"
        ) from None
    if answer.refused:
        raise ModelDirError(f"{graph}: --device {device} refuses it: {answer.refused}")
    return answer.kinds


def main() -> None:
    """The child: compile, count, reply."""
    import openvino as ov

    order = msgspec.json.decode(sys.stdin.buffer.read(MAX_REPLY), type=_Order)
    try:
        compiled = ov.Core().compile_model(order.graph, order.device)
        kinds: dict[str, int] = {}
        for operation in compiled.get_runtime_model().get_ops():
            info = operation.get_rt_info()
            kind = str(info["layerType"].value) if "layerType" in info else operation.get_type_name()
            kinds[kind] = kinds.get(kind, 0) + 1
        answer = _Reply(kinds=kinds)
    except RuntimeError as error:
        answer = _Reply(refused=essence(str(error)))
    with os.fdopen(int(sys.argv[1]), "wb") as reply:
        reply.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
