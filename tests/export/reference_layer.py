"""Hidden states of transformers' own decoder layer as an MTP head, for the rebuilt graph to be held against.

usage: reference_layer.py CHECKPOINT OUT.npz
needs: torch, transformers with qwen3_5 and qwen3_5_moe, safetensors (evals/export/constraints.txt has the versions)

Nothing of optimum-intel's and nothing of ours takes part: norms, rotation, attention, gate and experts are
transformers' modules, put together as the checkpoint's tensor names say. All positions are computed at once, without a
cache, in float32. OUT holds the inputs (hidden, embeds [1, S, H], positions [1, S]) and the output [1, S, H].
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

LENGTH, FIRST = 21, 100


def main() -> int:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig
    from transformers.models.qwen3_5 import modeling_qwen3_5
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe

    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    text = AutoConfig.from_pretrained(checkpoint).text_config
    library, name = (
        (modeling_qwen3_5_moe, "Qwen3_5Moe")
        if hasattr(text, "num_experts")
        else (modeling_qwen3_5, "Qwen3_5")
    )
    own = type(text)(**{**text.to_dict(), "num_hidden_layers": 1, "layer_types": ["full_attention"]})
    own._attn_implementation = "eager"
    tensors = load_file(checkpoint / "model.safetensors")
    weights = {key[4:]: value.float() for key, value in tensors.items() if key.startswith("mtp.")}

    def norm(which: str) -> torch.nn.Module:
        module = getattr(library, f"{name}RMSNorm")(own.hidden_size, eps=own.rms_norm_eps)
        module.load_state_dict({"weight": weights[f"{which}.weight"]})
        return module

    layer = getattr(library, f"{name}DecoderLayer")(own, layer_idx=0).float().eval()
    prefix = "layers.0."
    layer.load_state_dict({key[len(prefix) :]: w for key, w in weights.items() if key.startswith(prefix)})
    draw = np.random.default_rng(0)
    hidden, embeds = (draw.standard_normal((1, LENGTH, own.hidden_size), np.float32) for _ in range(2))
    positions = torch.arange(FIRST, FIRST + LENGTH)[None]
    later = torch.full((LENGTH, LENGTH), torch.finfo(torch.float32).min).triu(1)[None, None]
    with torch.no_grad():
        both = [
            norm("pre_fc_norm_embedding")(torch.tensor(embeds)),
            norm("pre_fc_norm_hidden")(torch.tensor(hidden)),
        ]
        x = torch.nn.functional.linear(torch.cat(both, dim=-1), weights["fc.weight"])
        rotary = getattr(library, f"{name}TextRotaryEmbedding")(own)(x, positions[None].expand(3, 1, LENGTH))
        x = layer(x, position_embeddings=rotary, attention_mask=later, position_ids=positions)
        x = norm("norm")(x[0] if isinstance(x, tuple) else x)
    np.savez_compressed(out, hidden=hidden, embeds=embeds, positions=positions.numpy(), output=x.numpy())
    return 0


if __name__ == "__main__":
    sys.exit(main())
