"""Engines in processes of their own: the parent stays small, and a crash or a hang is an outcome, not the end.

`process` is the parent's handle, `protocol` what passes; the children are `worker` (openvino-genai) and `split` (ours,
for both layouts of a head), with `serving` in common. `paged` and `target` run the served graph by openvino.Core, for
`split` and the replay alike; `prepare` is a short-lived child that renders prompts and asks the device. Only children
import openvino.
"""
