"""Run a study on this machine's GPU: `python -m tests.on_gpu.study NAME`, with --help for what it takes."""

import importlib
import sys

NAMES = ("true", "itself", "checks", "judge", "replay")

if __name__ == "__main__":
    name, *arguments = sys.argv[1:] or ["--help"]
    if name not in NAMES:
        sys.exit(f"{__doc__}\nNAME is one of {', '.join(NAMES)}.")
    sys.exit(importlib.import_module(f"tests.on_gpu.study.{name}").main(arguments))
