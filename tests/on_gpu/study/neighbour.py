"""Another process that keeps the GPU busy."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_gpubench.gpu.foreign import find_foreign, read_gpu
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.visible import find_visible

BUSY_S = 2.0
"""NVML's utilisation is a mean over up to a second."""
NEIGHBOUR = """
import torch
x = torch.randn(4096, 4096, device="cuda")
print("ready", flush=True)
while True:
    for _ in range(100):
        x @ x
    torch.cuda.synchronize()
"""


@contextmanager
def neighbour() -> Iterator[tuple[str, ...]]:
    """Keep the GPU busy from another process; yields what is said of it."""
    (gpu,) = find_visible()[:1]
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(BUSY_S)
            found = find_foreign(read_gpu(Nvml.open(gpu.uuid)), [os.getpid()], uses_gpu=True)
            yield () if found is None else (found.sentence,)
        finally:
            process.kill()
