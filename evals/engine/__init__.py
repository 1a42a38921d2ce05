"""openvino-genai in processes of its own: the parent stays small, and a crash or a hang is an outcome, not the end.

`process` is the parent's handle, `worker` the child, `protocol` what passes between them; `prepare` is a short-lived
child that renders prompts and asks the device. Only children import openvino.
"""
