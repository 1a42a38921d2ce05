"""Puts a trained body and one of its heads together, and exports the checkpoint to int4 OpenVINO IR.

usage: export_sample.py assemble TRAINED HEAD_STEPS CHECKPOINT
       export_sample.py export CHECKPOINT OUT
needs: safetensors (assemble); optimum-intel 2.2.0, nncf 3.4.0, transformers 5.2.0, openvino (export)

Tensors of `mtp.*` are stored as f32 with bf16 values: optimum-intel takes them raw from the file, and an fp32
export fails when they are narrower than the widened body. The exported graphs ask for a KV cache precision in
their runtime info, so that plain and mtp get it alike wherever the model is loaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = {
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
}
PROCESSORS = {
    "preprocessor_config.json": {
        "size": {"shortest_edge": 65536, "longest_edge": 16777216},
        "image_processor_type": "Qwen2VLImageProcessorFast",
        **IMAGES,
    },
    "video_preprocessor_config.json": {
        "size": {"shortest_edge": 4096, "longest_edge": 25165824},
        "video_processor_type": "Qwen3VLVideoProcessor",
        **IMAGES,
    },
}


def assemble(trained: Path, head_steps: int, checkpoint: Path) -> None:
    """Write CHECKPOINT with the body (bf16) and the head after `head_steps` (bf16 values as f32)."""
    import torch
    from safetensors.torch import load_file, save_file

    checkpoint.mkdir(parents=True, exist_ok=True)
    state = load_file(trained / "body.safetensors")
    head = load_file(trained / f"head-{head_steps}.safetensors")
    state |= {name: tensor.to(torch.float32) for name, tensor in head.items()}
    save_file(state, checkpoint / "model.safetensors", metadata={"format": "pt"})
    for name in ("chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(trained / name, checkpoint / name)
    config = json.loads((trained / "config.json").read_text())
    config["dtype"] = config["text_config"]["dtype"] = "float32"
    (checkpoint / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name, content in PROCESSORS.items():
        (checkpoint / name).write_text(json.dumps(content, indent=2) + "\n")


def export(checkpoint: Path, out: Path, kv_precision: str) -> None:
    """Export to int4 (group 64) and write the checksums beside OUT."""
    import openvino

    tool = Path(sys.executable).with_name("optimum-cli")
    with tempfile.TemporaryDirectory() as scratch:
        # A relative name, because the exporter writes the checkpoint's path into openvino_config.json.
        (Path(scratch) / "checkpoint").symlink_to(checkpoint.resolve())
        made = Path(scratch) / "int4"
        command = [str(tool), "export", "openvino", "--model", "checkpoint", "--task", "image-text-to-text"]
        command += [
            "--weight-format",
            "int4",
            "--group-size",
            "64",
            "--group-size-fallback",
            "ignore",
            "int4",
        ]
        subprocess.run(command, check=True, cwd=scratch)
        core = openvino.Core()
        for name in ("openvino_language_model", "openvino_mtp_model"):
            model = core.read_model(made / f"{name}.xml")
            model.set_rt_info(kv_precision, ["runtime_options", "KV_CACHE_PRECISION"])
            openvino.save_model(model, made / "changed.xml", compress_to_fp16=False)
            del model
            for suffix in (".xml", ".bin"):
                (made / f"changed{suffix}").replace(made / f"{name}{suffix}")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out)
    write_checksums(out)


def write_checksums(out: Path) -> None:
    """Write SHA256SUMS beside the directory, in sha256sum's format, names relative to the parent."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out.parent).as_posix()}\n"
        for path in sorted(out.rglob("*"))
        if path.is_file()
    ]
    (out.parent / "SHA256SUMS").write_text("".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("assemble")
    one.add_argument("trained", type=Path)
    one.add_argument("head_steps", type=int)
    one.add_argument("checkpoint", type=Path)
    two = commands.add_parser("export")
    two.add_argument("checkpoint", type=Path)
    two.add_argument("out", type=Path)
    two.add_argument("--kv-precision", default="u4")
    args = parser.parse_args()
    if args.command == "assemble":
        assemble(args.trained, args.head_steps, args.checkpoint)
    else:
        export(args.checkpoint, args.out, args.kv_precision)
    return 0


if __name__ == "__main__":
    sys.exit(main())
