"""Tests that `pytest-gpubench doctor --noise` runs in fresh processes: a call measured alone, and against itself."""

import pytest
import torch

from pytest_gpubench.fixture import GpuBench
from pytest_gpubench.gpu.device import find_device

GPU_TIMES_US = (2.0, 20.0, 200.0, 2000.0)
CPU_TIMES_US = (20.0, 200.0, 2000.0)
EMPTY_US = 2.0
"""The time of a call that moves hardly any memory."""
CPU_BYTES_PER_US = 4e3
LEAST_ELEMENTS = 1024


@pytest.mark.perf(min_speedup=1.0)  # which stays undecided, so that the whole budget is spent
@pytest.mark.parametrize("aimed_us", GPU_TIMES_US if torch.cuda.is_available() else CPU_TIMES_US)
def test_against_itself(gpu_bench: GpuBench, aimed_us: float) -> None:
    """Measure a call of about this time alone, then against itself."""
    numbers = torch.rand(_elements(aimed_us), device=gpu_bench.device)
    gpu_bench.measure(torch.neg, (numbers,), label="alone")
    gpu_bench.compare(torch.neg, torch.neg, (numbers,), names=("again", "once"))


def _elements(aimed_us: float) -> int:
    """Return the numbers that a call reads and writes in this time."""
    from pytest_gpubench.timing.peaks import copy_bandwidth

    device = find_device("auto")
    bytes_per_us = copy_bandwidth(device) if device.type == "cuda" else CPU_BYTES_PER_US
    moved_bytes = max(aimed_us - EMPTY_US, 0.0) * (bytes_per_us or 0.0)
    return max(LEAST_ELEMENTS, int(moved_bytes / 2 / torch.float32.itemsize))
