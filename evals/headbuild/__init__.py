"""A head rebuilt from a checkpoint's own `mtp.*` tensors, as OpenVINO graphs, without torch.

The semantics are those of transformers' Qwen3.5 decoder layer, settled by comparing hidden states with it
(tests/export), not by acceptance. May import evals.model_dir, evals.digest and evals.inspection; nothing here decodes.
"""
