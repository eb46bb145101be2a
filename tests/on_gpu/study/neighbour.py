"""Another process that keeps the GPU busy."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pytest_gpubench.gpu.foreign import computing, find_foreign, read_gpu, shares_since
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.visible import find_visible

BUSY_S = 2.0
"""NVML's utilisation is a mean over up to a second."""
NEIGHBOUR = """
import time
import torch
x = torch.randn(4096, 4096, device="cuda")
y = torch.empty_like(x)
on_host = torch.randn(4096, 4096).pin_memory()
print("ready", flush=True)
while True:
    for _ in range(100):
        {}
    torch.cuda.synchronize()
    time.sleep({})
"""


@dataclass(frozen=True)
class Work:
    """Work that a neighbour does a hundred times, and then pauses."""

    line: str
    pause_s: float = 0.0
    is_seen: bool = True
    """True if NVML has to say that it computes."""


MULTIPLIES = Work("torch.mm(x, x, out=y)")
NEIGHBOURS = {
    "multiplications": MULTIPLIES,
    "copies": Work("y.copy_(x)"),
    "copies from the host": Work("y.copy_(on_host, non_blocking=True)", is_seen=False),
    "multiplications now and then": Work(MULTIPLIES.line, pause_s=1.0, is_seen=False),
}
"""Little of the memory's work, all of it, none but the copy engine's, and a fifth of the time."""


@contextmanager
def neighbour(work: Work = MULTIPLIES) -> Iterator[tuple[str, ...]]:
    """Keep the GPU busy from another process; yields what is said of it."""
    if not (gpus := find_visible()):
        sys.exit("there is no GPU that another process could keep busy: run this study where there is one")
    source = NEIGHBOUR.format(work.line, work.pause_s)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(BUSY_S)
            nvml = Nvml.open(gpus[0].uuid)
            found, shares = find_foreign(read_gpu(nvml), [os.getpid()], uses_gpu=True), shares_since(nvml, time.time())
            print(f"beside {work}: NVML says {shares or 'nothing'}", flush=True)
            assert not work.is_seen or found is None or computing([found], shares), "NVML does not say that it computes"
            yield () if found is None else (found.sentence,)
        finally:
            process.kill()
