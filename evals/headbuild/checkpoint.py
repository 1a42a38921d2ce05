"""A checkpoint as its head's builder needs it: config.json and the `mtp.*` tensors, held against each other.

A loader that takes wrong names and shapes silently gives a head that loads, runs and accepts nothing
(notes of optimum-intel's exporter), so every tensor that the layer has must be there, in its shape, and no other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from evals.headbuild.tensors import WIDTHS, Tensor, read_header
from evals.model_dir import MAX_CONFIG, ModelDirError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_SHARDS = 1024
MAX_INDEX = 64 << 20

_Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]


class Rope(msgspec.Struct, frozen=True):
    """config.json's rope_parameters. rope_type: only "default" is built."""

    rope_theta: _Positive = 10_000.0
    partial_rotary_factor: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    rope_type: str = "default"


class TextConfig(msgspec.Struct, frozen=True):
    """What config.json says of the decoder layers, as far as a head is built from it. Defaults are transformers'."""

    hidden_size: _Size
    num_attention_heads: _Size
    vocab_size: _Size
    model_type: str = ""
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    intermediate_size: _Size | None = None
    moe_intermediate_size: _Size | None = None
    shared_expert_intermediate_size: _Size | None = None
    num_experts: Annotated[int, msgspec.Meta(ge=0, le=1 << 16)] | None = None
    num_experts_per_tok: _Size | None = None
    rms_norm_eps: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = False
    attn_output_gate: bool = True
    mtp_num_hidden_layers: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None
    mtp_use_dedicated_embeddings: bool = False
    rope_parameters: Rope | None = None

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def rope(self) -> Rope:
        return self.rope_parameters or Rope()

    @property
    def rotary(self) -> int:
        """Channels of a head that are rotated."""
        return int(self.head_width * self.rope.partial_rotary_factor)


class Checkpoint(msgspec.Struct, frozen=True):
    """A checkpoint with one whole head. tensors: the head's, by name without `mtp.`. experts: 0 for a dense one.

    fused: whether the experts are stored as two stacks (`experts.gate_up_proj`), not one by one.
    """

    path: Path
    text: TextConfig
    tensors: dict[str, Tensor]
    experts: int
    fused: bool

    @property
    def bytes(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())


def read_checkpoint(root: Path) -> Checkpoint:
    """Read config and headers, no weights. Raises ModelDirError, saying what is missing, foreign or not supported."""
    if not root.is_dir():
        what = "a file" if root.exists() else "nothing there"
        raise ModelDirError(
            f"{root}: expected a checkpoint's directory, found {what}. Check the path's spelling."
        )
    text = read_text_config(root)
    _supported(root, text)
    found = head_tensors(root)
    if not found:
        raise ModelDirError(
            f"{root}: expected tensors named mtp.* (the head), found none: this checkpoint was saved without its head, "
            "as transformers does. Take the original one."
        )
    experts = text.num_experts or 0
    fused = "layers.0.mlp.experts.gate_up_proj" in found
    wanted = expected_shapes(text, fused)
    for name, shape in wanted.items():
        if name not in found:
            raise ModelDirError(f"{root}: expected tensor mtp.{name}, found none: a head stored in part.")
        tensor = found[name]
        if tensor.shape != shape:
            raise ModelDirError(
                f"{tensor.file}: expected mtp.{name} of shape {list(shape)} by its config, found {list(tensor.shape)}. "
                "Take config and weights from one checkpoint."
            )
        if tensor.dtype not in WIDTHS:
            raise ModelDirError(
                f"{tensor.file}: expected mtp.{name} as one of {', '.join(WIDTHS)}, found {tensor.dtype[:16]}. "
                "Quantised checkpoints aren't rebuilt: take the 16-bit one."
            )
    foreign = sorted(found.keys() - wanted.keys())
    if foreign:
        raise ModelDirError(
            f"{root}: tensor mtp.{foreign[0][:80]} ({len(foreign)} in all) isn't part of the one layer that is known "
            "(Qwen3.5's, dense or mixture of experts): a head built without it would be another one."
        )
    return Checkpoint(path=root, text=text, tensors=found, experts=experts, fused=fused)


def read_text_config(root: Path) -> TextConfig:
    """config.json's text part over its top level. Raises ModelDirError."""
    file = root / "config.json"
    try:
        if file.stat().st_size > MAX_CONFIG:
            raise ModelDirError(f"{file}: expected at most {MAX_CONFIG} bytes, found {file.stat().st_size}.")
        top: Any = msgspec.json.decode(file.read_bytes())
        nested = top.get("text_config") if isinstance(top, dict) else None
        return msgspec.convert({**top, **nested} if isinstance(nested, dict) else top, TextConfig)
    except FileNotFoundError:
        raise ModelDirError(f"{root}: expected a checkpoint, found no config.json in it.") from None
    except OSError as error:
        raise ModelDirError(f"{file}: cannot be read ({error}).") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ModelDirError(f"{file}: expected a model's configuration, found: {error}.") from error


def weight_map(root: Path) -> dict[str, str]:
    """Tensor name → file name, by the index or the single file's header. Raises ModelDirError."""
    index = root / INDEX
    if not index.is_file():
        if not (root / SINGLE).is_file():
            raise ModelDirError(
                f"{root}: expected {SINGLE} or {INDEX}, found neither. Only safetensors are read."
            )
        return dict.fromkeys(read_header(root / SINGLE), SINGLE)
    try:
        if index.stat().st_size > MAX_INDEX:
            raise ModelDirError(f"{index}: expected at most {MAX_INDEX} bytes, found {index.stat().st_size}.")
        named = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
    except OSError as error:
        raise ModelDirError(f"{index}: cannot be read ({error}).") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ModelDirError(
            f"{index}: expected an index of safetensors, found: {error}. Fetch it again."
        ) from error
    for name in set(named.values()):
        if not _is_file_name(name):
            raise ModelDirError(
                f"{index}: expected names of files in its own directory, found {name[:80]!r}. Fetch it again."
            )
    return named


def head_tensors(root: Path) -> dict[str, Tensor]:
    """The tensors `mtp.*` by name without `mtp.`, from headers alone. Raises ModelDirError."""
    named = {name: file for name, file in weight_map(root).items() if name.startswith("mtp.")}
    shards = sorted(set(named.values()))
    if len(shards) > MAX_SHARDS:
        raise ModelDirError(f"{root}: expected the head in at most {MAX_SHARDS} files, found {len(shards)}.")
    found = {}
    for shard in shards:
        if not (root / shard).is_file():
            raise ModelDirError(
                f"{root}: expected {shard}, which holds the head by {INDEX}, found none. Fetch it."
            )
        held = read_header(root / shard)
        for name in (name for name, file in named.items() if file == shard):
            if name not in held:
                raise ModelDirError(
                    f"{root}/{shard}: expected {name[:80]} by {INDEX}, found none. Fetch it again."
                )
            found[name.removeprefix("mtp.")] = held[name]
    return found


def _is_file_name(name: str) -> bool:
    """Whether a file of the directory can have this name, which is not hidden and at most 255 bytes long."""
    length = len(name.encode("utf-8", "surrogatepass"))
    return 0 < length <= 255 and not name.startswith(".") and not {"/", "\0"} & set(name)


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def _supported(root: Path, text: TextConfig) -> None:
    layers = text.mtp_num_hidden_layers
    if layers is None or layers == 0:
        said = "nothing" if layers is None else "0"
        raise ModelDirError(
            f"{root}/config.json: expected mtp_num_hidden_layers = 1, found {said}: no head is declared. Take a "
            "checkpoint of Qwen3.5 or newer, with its own config.json."
        )
    if layers != 1:
        raise ModelDirError(
            f"{root}/config.json: expected mtp_num_hidden_layers = 1, found {layers}: deeper heads aren't built."
        )
    unknown = {
        "hidden_act": (text.hidden_act, "silu"),
        "attention_bias": (text.attention_bias, False),
        "attn_output_gate": (text.attn_output_gate, True),
        "mtp_use_dedicated_embeddings": (text.mtp_use_dedicated_embeddings, False),
        "rope_type": (text.rope.rope_type, "default"),
    }
    for name, (found, known) in unknown.items():
        if found != known:
            raise ModelDirError(
                f"{root}/config.json: expected {name} = {known!r}, found {found!r}: no such layer is known."
            )
    if text.num_attention_heads % text.kv_heads or text.rotary % 2 or text.rotary < 2:
        raise ModelDirError(
            f"{root}/config.json: {text.num_attention_heads} heads over {text.kv_heads} key heads with {text.rotary} "
            "rotated channels can't be laid out; expected a whole number of heads each, and an even number of channels."
        )
    if text.num_experts and not 1 <= (text.num_experts_per_tok or 0) <= text.num_experts:
        raise ModelDirError(
            f"{root}/config.json: expected num_experts_per_tok between 1 and {text.num_experts}, found "
            f"{text.num_experts_per_tok}."
        )


def expected_shapes(text: TextConfig, fused: bool) -> dict[str, tuple[int, ...]]:
    """Name without `mtp.` → shape of every tensor of the head. fused: experts as two stacks."""
    experts = text.num_experts or 0
    hidden, width = text.hidden_size, text.head_width
    layer = "layers.0."
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, 2 * hidden),
        "pre_fc_norm_embedding.weight": (hidden,),
        "pre_fc_norm_hidden.weight": (hidden,),
        "norm.weight": (hidden,),
        f"{layer}input_layernorm.weight": (hidden,),
        f"{layer}post_attention_layernorm.weight": (hidden,),
        f"{layer}self_attn.q_proj.weight": (2 * text.num_attention_heads * width, hidden),
        f"{layer}self_attn.k_proj.weight": (text.kv_heads * width, hidden),
        f"{layer}self_attn.v_proj.weight": (text.kv_heads * width, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, text.num_attention_heads * width),
        f"{layer}self_attn.q_norm.weight": (width,),
        f"{layer}self_attn.k_norm.weight": (width,),
    }
    mlp = f"{layer}mlp."
    if not experts:
        return shapes | _gated(mlp, text.intermediate_size, hidden)
    inner = text.moe_intermediate_size or 0
    shapes |= {f"{mlp}gate.weight": (experts, hidden), f"{mlp}shared_expert_gate.weight": (1, hidden)}
    shapes |= _gated(f"{mlp}shared_expert.", text.shared_expert_intermediate_size, hidden)
    if fused:
        return shapes | {
            f"{mlp}experts.gate_up_proj": (experts, 2 * inner, hidden),
            f"{mlp}experts.down_proj": (experts, hidden, inner),
        }
    for number in range(experts):
        shapes |= _gated(f"{mlp}experts.{number}.", inner, hidden)
    return shapes


def _gated(prefix: str, inner: int | None, hidden: int) -> dict[str, tuple[int, ...]]:
    wide = inner or 0
    return {
        f"{prefix}gate_proj.weight": (wide, hidden),
        f"{prefix}up_proj.weight": (wide, hidden),
        f"{prefix}down_proj.weight": (hidden, wide),
    }
