"""transformers' own `serve` in a process of its own, until its standard input ends. Run by the exporter's Python.

usage: transformers_server.py PORT MODEL
"""

from __future__ import annotations

import os
import sys
import threading


def end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    import torch
    from transformers.cli.serve import Serve

    torch.set_num_threads(1)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    Serve(force_model=sys.argv[2], port=int(sys.argv[1]), host="127.0.0.1", device="cpu")


if __name__ == "__main__":
    main()
