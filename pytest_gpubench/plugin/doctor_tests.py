"""Tests that `pytest-gpubench doctor` runs in fresh processes: for --noise, and for --counters."""

from collections.abc import Callable, Mapping

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
    from pytest_gpubench.timing.peaks import copy_bandwidth

    device = find_device("auto")
    bytes_per_us = copy_bandwidth(device) if device.type == "cuda" else CPU_BYTES_PER_US
    moved_bytes = max(aimed_us - EMPTY_US, 0.0) * (bytes_per_us or 0.0)
    elements = max(LEAST_ELEMENTS, int(moved_bytes / 2 / torch.float32.itemsize))
    numbers = torch.rand(elements, device=gpu_bench.device)
    gpu_bench.measure(torch.neg, (numbers,), label="alone")
    gpu_bench.compare(torch.neg, torch.neg, (numbers,), names=("again", "once"))


SIZE = 8192
"""Rows and columns of the numbers of counted calls, a dozen of several kinds."""
CALLS: Mapping[str, Callable[[torch.Tensor], object]] = {
    "add": lambda x: torch.add(x, x),
    "small add": lambda x: torch.add(x[:16], x[:16]),
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "row sum": lambda x: x.sum(-1),
    "column sum": lambda x: x.sum(0),
    "cumsum": lambda x: x.cumsum(-1),
    "transpose": lambda x: x.t().contiguous(),
    "cast": lambda x: x.bfloat16(),
    "matmul": lambda x: x[:2048].bfloat16() @ x[:2048].bfloat16().T,
    "attention": lambda x: attention(x[:1024].bfloat16().view(4, 16, 2048, 64)),
    "top 32": lambda x: torch.topk(x[:2048], 32),
}


def attention(heads: torch.Tensor) -> torch.Tensor:
    """Return the attention of heads to themselves."""
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize("name", CALLS)
def test_counted(gpu_bench: GpuBench, name: str) -> None:
    """Measure a call, of which counters are taken."""
    numbers = torch.rand(SIZE, SIZE, device=gpu_bench.device)
    gpu_bench.measure(CALLS[name], (numbers,), label=name)
