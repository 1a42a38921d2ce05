"""Trains the sample model: a small Qwen3.5 with an MTP head, dense or mixture of experts, on sample_data.

usage: train_sample.py OUT [--moe] [--steps 1400] [--attention-every 4] [--seconds 400] [--seed 0]
needs: torch with CUDA, transformers 5.17, tokenizers, safetensors, jinja2 (README.md says where it ran)

Three stages. The body learns the next token on fresh chats; over the last part of it the weights of its linear
layers are rounded to 4 bits in the forward pass, as the export will round them, so that forks which are even
stay even in int4. Then the body is frozen and the head learns the token after next. Its state is kept at
several steps, because a head of a few hundred steps accepts nearly everything: export_sample.py picks one.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import sample_data
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3_5 import configuration_qwen3_5, modeling_qwen3_5
from transformers.models.qwen3_5_moe import configuration_qwen3_5_moe, modeling_qwen3_5_moe

VOCABULARY = 1536
HEAD_STEPS = (50, 70, 90, 120, 160)
LENGTH = 800
GROUP = 64
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{m['role']}}\n{{m['content']}}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PICTURE_TOKENS = 64  # 256 x 256 pixels, patches of 16, merged 2 x 2


def train_tokenizer(seed: int) -> Tokenizer:
    r = Random(seed)
    chats = [sample_data.chat(*sample_data.sample(r)) for _ in range(6000)]
    chats += [sample_data.chat(*sample_data.image_sample(r)[:2]) for _ in range(100)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(chats, trainer)
    return tokenizer


def configuration(tokenizer: Tokenizer, moe: bool, attention_every: int) -> Any:
    ids = {name: tokenizer.token_to_id(name) for name in SPECIAL}
    hidden, layers = (192, 4) if moe else (256, 8)
    text: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "layer_types": [
            "linear_attention" if (i + 1) % attention_every else "full_attention" for i in range(layers)
        ],
        "max_position_embeddings": 16384,
        "mtp_num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "eos_token_id": ids["<|im_end|>"],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_interleaved": True,
            "mrope_section": [4, 2, 2],
            "partial_rotary_factor": 0.25,
        },
    }
    if moe:
        text |= {
            "moe_intermediate_size": 192,
            "shared_expert_intermediate_size": 192,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        }
    else:
        text |= {"intermediate_size": 3 * hidden}
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": hidden,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 64,
    }
    make = configuration_qwen3_5_moe.Qwen3_5MoeConfig if moe else configuration_qwen3_5.Qwen3_5Config
    return make(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )


class Head(nn.Module):
    """The MTP layer with the tensor names of Qwen3.5's checkpoints (without their `mtp.`).

    hidden [B, S, H] of the target's last norm and the embedding [B, S, H] of the next token go in; a hidden
    state [B, S, H] for the target's lm_head comes out.
    """

    def __init__(self, text: Any, moe: bool) -> None:
        super().__init__()
        library = modeling_qwen3_5_moe if moe else modeling_qwen3_5
        name = "Qwen3_5Moe" if moe else "Qwen3_5"
        norm = getattr(library, f"{name}RMSNorm")
        own = type(text)(**{**text.to_dict(), "num_hidden_layers": 1, "layer_types": ["full_attention"]})
        own._attn_implementation = "sdpa"
        self.pre_fc_norm_embedding = norm(text.hidden_size, eps=text.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(text.hidden_size, eps=text.rms_norm_eps)
        self.fc = nn.Linear(2 * text.hidden_size, text.hidden_size, bias=False)
        self.layers = nn.ModuleList([getattr(library, f"{name}DecoderLayer")(own, layer_idx=0)])
        self.norm = norm(text.hidden_size, eps=text.rms_norm_eps)
        self._rotary = [getattr(library, f"{name}TextRotaryEmbedding")(own)]
        for name_, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif "norm" in name_:
                nn.init.zeros_(parameter)  # these norms scale by 1 + weight

    def forward(self, hidden: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)], -1))
        n = x.shape[1]
        positions = torch.arange(n, device=x.device)[None, None].expand(3, x.shape[0], n)
        rotary = self._rotary[0].to(x.device)(x, positions)
        mask = torch.full((n, n), torch.finfo(x.dtype).min, device=x.device, dtype=x.dtype).triu(1)[
            None, None
        ]
        x = self.layers[0](x, position_embeddings=rotary, attention_mask=mask, position_ids=positions[0])
        return self.norm(x[0] if isinstance(x, tuple) else x)


class Rounding:
    """Rounds linear weights to int4 in the forward pass while `on` (asymmetric, groups of GROUP inputs)."""

    def __init__(self) -> None:
        self.on = False

    def __call__(self, weight: torch.Tensor) -> torch.Tensor:
        if not self.on or weight.shape[-1] % GROUP:
            return weight
        with torch.no_grad():
            w = weight.float().unflatten(-1, (-1, GROUP))
            low, high = w.amin(-1, keepdim=True).clamp(max=0), w.amax(-1, keepdim=True).clamp(min=0)
            scale = ((high - low) / 15).clamp(min=1e-8).half().float()
            zero = (-low / scale).round().clamp(0, 15)
            rounded = (((w / scale + zero).round().clamp(0, 15) - zero) * scale).flatten(-2)
            change = rounded - weight
        return weight + change

    def apply(self, *modules: nn.Module) -> None:
        for module in modules:
            for part in module.modules():
                if isinstance(part, nn.Linear):
                    part.forward = lambda x, part=part: F.linear(x, self(part.weight), part.bias)
                elif type(part).__name__ == "Qwen3_5MoeExperts":
                    part.forward = lambda *a, part=part: self.experts(part, *a)

    def experts(self, part: Any, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Compute every expert and keep the chosen ones: as the class does, without a loop over tokens."""
        gate, up = torch.einsum("nh,eih->eni", x, self(part.gate_up_proj).to(x.dtype)).chunk(2, -1)
        out = torch.einsum("eni,ehi->enh", part.act_fn(gate) * up, self(part.down_proj).to(x.dtype))
        share = torch.zeros(x.shape[0], part.num_experts, device=x.device, dtype=x.dtype)
        share.scatter_(1, index, weights.to(x.dtype))
        return torch.einsum("enh,ne->nh", out, share)


def encode(job: tuple[int, int, str]) -> list[tuple[list[int], int]]:
    """Return chats as token ids with the length of their prompt, made from one seed."""
    seed, count, file = job
    tokenizer = Tokenizer.from_file(file)
    r = Random(seed)
    chats = []
    for _ in range(count):
        prompt, answer = sample_data.sample(r)
        start = tokenizer.encode(sample_data.chat(prompt)).ids
        chats.append(((start + tokenizer.encode(answer + "<|im_end|>").ids)[:LENGTH], len(start)))
    return chats


def text_batch(chats: list[tuple[list[int], int]], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids [B, S], right-padded with 0, and a mask [B, S] that is 1 on the answers."""
    longest = max(len(ids) for ids, _ in chats)
    ids = torch.zeros(len(chats), longest, dtype=torch.long)
    mask = torch.zeros(len(chats), longest)
    for row, (chat, start) in enumerate(chats):
        ids[row, : len(chat)] = torch.tensor(chat)
        mask[row, start : len(chat)] = 1
    return ids.to(device), mask.to(device)


def picture_batch(
    tokenizer: Tokenizer, r: Random, count: int, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, mask (as text_batch), pixels [count x 256, 1536] and grid [count, 3] of one-colour pictures."""
    chats, pixels = [], []
    for _ in range(count):
        question, answer, rgb = sample_data.image_sample(r)
        tag = "<|vision_start|>" + "<|image_pad|>" * PICTURE_TOKENS + "<|vision_end|>" + r.choice(["", "\n"])
        start = tokenizer.encode(sample_data.chat(tag + question)).ids
        chats.append((start + tokenizer.encode(answer + "<|im_end|>").ids, len(start)))
        colour = torch.tensor(rgb).float()[:, None].expand(3, 2 * 16 * 16).reshape(-1) / 127.5 - 1
        pixels.append(colour.expand(4 * PICTURE_TOKENS, -1))
    grid = torch.tensor([[1, 16, 16]] * count, device=device)
    return *text_batch(chats, device), torch.cat(pixels).to(device), grid


def next_token_loss(logits: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, ahead: int) -> torch.Tensor:
    """Return the mean cross entropy of logits [B, S - ahead, V] against the ids `ahead` places on."""
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, ahead:].flatten(), reduction="none")
    return (loss * mask[:, ahead:].flatten()).sum() / mask[:, ahead:].sum()


def rate(progress: float) -> float:
    """Return the share of the peak learning rate at a progress of 0 to 1: warm-up, then a cosine to 0.5 %."""
    return min(1.0, progress / 0.05) * (0.005 + 0.4975 * (1 + math.cos(math.pi * progress)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--moe", action="store_true")
    parser.add_argument("--steps", type=int, default=1400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--attention-every", type=int, default=4)
    parser.add_argument(
        "--sharpness", type=float, default=2.5, help="what query and key norms scale by at first"
    )
    parser.add_argument("--seconds", type=float, default=400, help="cool down when this much has passed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(args.seed + 1)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(args.out)
    print(transformers.__version__, torch.__version__, "vocabulary", tokenizer.get_vocab_size(), flush=True)

    per_job = 256
    jobs = [
        (args.seed * 100_000 + 100 + n, per_job, str(args.out / "tokenizer.json"))
        for n in range((args.steps + HEAD_STEPS[-1]) * args.batch // per_job + 1)
    ]
    with multiprocessing.get_context("fork").Pool(min(14, os.cpu_count() or 1)) as pool:
        chats = [chat for part in pool.map(encode, jobs, chunksize=2) for chat in part]
    lengths = sorted(len(ids) - start for ids, start in chats)
    print("chats", len(chats), "answer median", lengths[len(lengths) // 2], "max", lengths[-1])
    print("data after", round(time.monotonic() - began), "s", flush=True)

    torch.manual_seed(args.seed)
    config = configuration(tokenizer, args.moe, args.attention_every)
    library = modeling_qwen3_5_moe if args.moe else modeling_qwen3_5
    kind = "Qwen3_5MoeForConditionalGeneration" if args.moe else "Qwen3_5ForConditionalGeneration"
    model = getattr(library, kind)(config).to(device)
    head = Head(config.text_config, args.moe).to(device)
    for name, parameter in [*model.named_parameters(), *head.named_parameters()]:
        if "mlp.gate.weight" in name or "experts." in name:
            nn.init.normal_(parameter, std=0.02)
        elif "q_norm" in name or "k_norm" in name:
            nn.init.constant_(parameter, args.sharpness - 1)  # these norms scale by 1 + weight
    body, lm_head = model.model.language_model, model.lm_head
    rounding = Rounding()
    rounding.apply(body, head)
    millions = [round(sum(p.numel() for p in m.parameters()) / 1e6, 2) for m in (model, head)]
    print("parameters, millions", millions, flush=True)

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        return text_batch(chats[step * args.batch : (step + 1) * args.batch], device)

    r = Random(args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.05)
    train_began, step, progress, picture_loss = time.monotonic(), 0, 0.0, torch.zeros(())
    while progress < 1:
        progress = max(step / args.steps, (time.monotonic() - train_began) / args.seconds)
        rounding.on = progress > 0.45
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * rate(min(progress, 1.0))
        with torch.autocast(device, torch.bfloat16):
            ids, mask = batch(step)
            logits = lm_head(body(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]).float()
            loss = next_token_loss(logits, ids, mask, 1)
            if step % 8 == 4:
                ids, mask, pixels, grid = picture_batch(tokenizer, r, 16, device)
                hidden = model.model(
                    input_ids=ids,
                    pixel_values=pixels,
                    image_grid_thw=grid,
                    mm_token_type_ids=(ids == config.image_token_id).int(),
                    use_cache=False,
                ).last_hidden_state
                picture_loss = next_token_loss(lm_head(hidden[:, :-1]).float(), ids, mask, 1)
                loss = loss + 0.2 * picture_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 4 or progress >= 1:
            seconds = round(time.monotonic() - train_began)
            print(
                "body", step, f"{loss.item():.4f} picture {picture_loss.item():.3f}", seconds, "s", flush=True
            )
        step += 1

    model.generation_config.eos_token_id = tokenizer.token_to_id("<|im_end|>")
    model.eval()
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.05)
    heads = {}
    for head_step in range(HEAD_STEPS[-1]):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (head_step + 1) / 20)
        ids, mask = batch(
            step + head_step if (step + head_step + 1) * args.batch <= len(chats) else head_step
        )
        with torch.autocast(device, torch.bfloat16):
            with torch.no_grad():
                hidden = body(input_ids=ids, use_cache=False).last_hidden_state
                target = lm_head(hidden[:, 1:-1]).argmax(-1)
                embedding = body.embed_tokens(ids[:, 1:])
            logits = lm_head(head(hidden[:, :-1], embedding)[:, :-1]).float()
            loss = next_token_loss(logits, ids, mask, 2)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        if head_step + 1 in HEAD_STEPS:
            agree = ((logits.argmax(-1) == target).float() * mask[:, 2:]).sum() / mask[:, 2:].sum()
            print(
                "head",
                head_step + 1,
                f"{loss.item():.4f} agrees with the target {agree.item():.4f}",
                flush=True,
            )
            heads[head_step + 1] = {
                f"mtp.{k}": v.detach().to("cpu", torch.bfloat16).contiguous()
                for k, v in head.state_dict().items()
            }

    model.to("cpu", torch.bfloat16).save_pretrained(args.out)
    state = load_file(args.out / "model.safetensors")
    save_file(state, args.out / "body.safetensors", metadata={"format": "pt"})
    (args.out / "model.safetensors").unlink()
    for head_step, tensors in heads.items():
        save_file(tensors, args.out / f"head-{head_step}.safetensors", metadata={"format": "pt"})
    (args.out / "training.json").write_text(
        json.dumps(
            {
                "arguments": {k: str(v) for k, v in vars(args).items() if k != "out"},
                "steps": step,
                "seconds": round(time.monotonic() - began),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
            indent=1,
        )
        + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
