"""Model directories in the split layout, made of the sample: its layer renamed, its lm_head cut out of the target."""

from __future__ import annotations

import shutil
from pathlib import Path

import openvino as ov
from openvino import opset13 as ops

from evals.headbuild.lm_head import cut_lm_head
from tests.evals.inspection_dirs import HEAD, TARGET, linked, parameter

LAYER, LM_HEAD = "openvino_mtp_layer", "openvino_mtp_lm_head"


def split_sample(sample: Path, into: Path) -> Path:
    """The sample with its head in the split layout; the same weights."""
    linked(sample, into, without=tuple(f"{HEAD}.{end}" for end in ("xml", "bin")))
    for end in ("xml", "bin"):
        shutil.copyfile(sample / f"{HEAD}.{end}", into / f"{LAYER}.{end}")
    save_lm_head_of(sample, into)
    return into


def save_lm_head_of(sample: Path, into: Path) -> None:
    ov.save_model(cut_lm_head(sample / f"{TARGET}.xml"), into / f"{LM_HEAD}.xml", compress_to_fp16=False)


def published_layer(sample: Path, into: Path) -> None:
    """The sample's layer with the inputs of published heads: an additive mask f32 [batch, 1, tokens, context] from
    outside, positions as f32, and the embeddings' input called input_embeds."""
    graph = ov.Core().read_model(sample / f"{HEAD}.xml")
    mask = parameter("attention_mask", [-1, 1, -1, -1])
    positions = parameter("position_ids", [-1, -1])
    old = {port.get_any_name(): port.get_node() for port in graph.inputs}
    attention = next(n for n in graph.get_ops() if n.get_type_name() == "ScaledDotProductAttention")
    attention.input(3).replace_source_output(mask.output(0))
    whole = ops.convert(positions, "i64")
    for reader in list(old["position_ids"].output(0).get_target_inputs()):
        reader.replace_source_output(whole.output(0))
    old["inputs_embeds"].output(0).set_names({"input_embeds"})
    old["inputs_embeds"].set_friendly_name("input_embeds")
    kept = [node for name, node in old.items() if name not in ("attention_mask", "position_ids")]
    changed = ov.Model(graph.get_results(), graph.get_sinks(), [*kept, mask, positions], "layer")
    for end in ("xml", "bin"):
        (into / f"{LAYER}.{end}").unlink(missing_ok=True)
    ov.save_model(changed, into / f"{LAYER}.xml", compress_to_fp16=False)
