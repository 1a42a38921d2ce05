"""The threat: a head of several GB is built only on a machine with many times its size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evals.headbuild.checkpoint import TextConfig, expected_shapes
from tests.evals.checkpoints import noise

TEXT = {
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 1000,
    "mtp_num_hidden_layers": 1,
    "intermediate_size": 16000,
}
MIXED = {
    **TEXT,
    "intermediate_size": None,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 32,
    "num_experts_per_tok": 4,
}
MOST = 1.5
CHILD = """
import resource, sys
from pathlib import Path
import openvino
from evals.headbuild.checkpoint import read_checkpoint
from evals.headbuild.formats import Format
from evals.headbuild.layer import build_layer
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, checkpoint = peak(), read_checkpoint(Path(sys.argv[1]))
openvino.save_model(build_layer(checkpoint, Format(sys.argv[2])), sys.argv[3], compress_to_fp16=False)
print((peak() - before) / checkpoint.bytes)
"""


@pytest.mark.parametrize(
    ("text", "fused", "weight_format"),
    [
        (TEXT, False, "fp16"),
        (TEXT, False, "int8"),
        (TEXT, False, "int4"),
        (MIXED, True, "fp16"),
        (MIXED, False, "int4"),
    ],
    ids=["dense fp16", "dense int8", "dense int4", "stacked experts fp16", "experts one by one int4"],
)
def test_peak_memory_over_the_heads_size(
    tmp_path: Path, text: dict[str, Any], fused: bool, weight_format: str
) -> None:
    """Of a child that builds a head of some 270 MB in bf16, over what its imports take before."""
    checkpoint = noise(tmp_path / "c", expected_shapes(msgspec.convert(text, TextConfig), fused=fused), text)
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(checkpoint), weight_format, str(tmp_path / "layer.xml")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(ended.stdout.split()[-1]) <= MOST
