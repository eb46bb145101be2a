"""Tests with counters, as a user would write them; the study `counters gate` runs them.

MORE: how many times the rows one of them has. MOST_US: the limit on the time of another. COUNTED: the instructions of
the softmax, and the bytes that it reads, around which two have their limits.
"""

import json
import os

import pytest
import torch

from pytest_gpubench import GpuBench
from tests.on_gpu.study.reasons_kernels import doubling_kernel

ROWS, COLUMNS = 8192, 8192
MORE, MOST_US = (float(os.environ.get(name, default)) for name, default in (("MORE", "1"), ("MOST_US", "1e6")))

INSTRUCTIONS, READ_BYTES = json.loads(os.environ.get("COUNTED", "[1e9, 1e9]"))
MARGIN = 0.01
"""On either side of the bytes; instructions have none."""


def normal(gpu_bench: GpuBench, more: float = 1.0) -> torch.Tensor:
    return torch.randn(round(ROWS * more), COLUMNS, device=gpu_bench.device)


def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    doubling_kernel[(x.numel() // 1024,)](x, out, x.numel(), BLOCK=1024)
    return out


def normed(x: torch.Tensor) -> torch.Tensor:
    """Read all values three times."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


@pytest.mark.perf(max_instructions=2e8, max_dram_bytes="1.1x", max_counters={"load_sectors": 1e7})
def test_kept_softmax(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(torch.softmax, (normal(gpu_bench), -1))


@pytest.mark.perf(max_instructions=INSTRUCTIONS, max_dram_bytes=round(READ_BYTES * (1 + MARGIN)))
def test_just_inside(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(torch.softmax, (normal(gpu_bench), -1))


@pytest.mark.perf(max_instructions=INSTRUCTIONS - 1, max_dram_bytes=round(READ_BYTES * (1 - MARGIN)))
def test_just_outside(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(torch.softmax, (normal(gpu_bench), -1))


@pytest.mark.perf(max_time_us=MOST_US)
def test_kept_triton(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(doubled, (normal(gpu_bench),))


def test_grown(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(doubled, (normal(gpu_bench, MORE),))


@pytest.mark.perf(max_instructions=1e6)
def test_broken_instructions(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(doubled, (normal(gpu_bench),))


@pytest.mark.perf(max_dram_bytes="1.1x")
def test_broken_reads(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(normed, (normal(gpu_bench),))


@pytest.mark.perf(min_speedup=0.9)
def test_broken_speedup(gpu_bench: GpuBench) -> None:
    gpu_bench.compare({"twice": lambda x: doubled(doubled(x)) / 2}, doubled, args=(normal(gpu_bench),))
