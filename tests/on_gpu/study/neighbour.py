"""Another process that keeps the GPU busy."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_gpubench.gpu.foreign import computing, find_foreign, read_gpu, shares_since
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.visible import find_visible

BUSY_S = 2.0
"""NVML's utilisation is a mean over up to a second."""
NEIGHBOUR = """
import torch
x = torch.randn(4096, 4096, device="cuda")
y = torch.empty_like(x)
print("ready", flush=True)
while True:
    for _ in range(100):
        {}
    torch.cuda.synchronize()
"""
MULTIPLIES, COPIES = "torch.mm(x, x, out=y)", "y.copy_(x)"
"""The work of a neighbour: little of the memory's, or all."""


@contextmanager
def neighbour(work: str = MULTIPLIES) -> Iterator[tuple[str, ...]]:
    """Keep the GPU busy from another process, which NVML has to see; yields what is said of it."""
    if not (gpus := find_visible()):
        sys.exit("there is no GPU that another process could keep busy: run this study where there is one")
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR.format(work)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(BUSY_S)
            nvml = Nvml.open(gpus[0].uuid)
            found, shares = find_foreign(read_gpu(nvml), [os.getpid()], uses_gpu=True), shares_since(nvml, time.time())
            assert found is None or computing([found], shares), f"NVML does not say that it computes: {shares}"
            yield () if found is None else (found.sentence,)
        finally:
            process.kill()
