"""Measure one call: limit its time, its noise, and its share of what this GPU's memory can do."""

import pytest
import torch

from example_suite import ON_GPU
from example_suite.kernels.vector_add import vector_add
from pytest_gpubench import GpuBench

COUNT = 2**24 if ON_GPU else 10_000


def torch_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


# without a limit, the time is only shown
def test_torch_add(gpu_bench: GpuBench) -> None:
    x, y = torch.randn(2, COUNT, device=gpu_bench.device)
    gpu_bench(torch_add, x, y)


# a GPU that max_time_us does not name is not judged by it, with a warning
@pytest.mark.perf(max_time_us={"H200": 150, "H100": 300, "A100": 400, "L40S": 600}, max_rel_std=0.2)
def test_vector_add_is_fast_and_steady(gpu_bench: GpuBench) -> None:
    x, y = torch.randn(2, COUNT, device=gpu_bench.device)
    gpu_bench(vector_add, x, y)


@pytest.mark.perf(min_peak_fraction=0.4)
def test_vector_add_is_as_fast_as_memory_allows(gpu_bench: GpuBench) -> None:
    x, y = torch.randn(2, COUNT, device=gpu_bench.device)
    gpu_bench(vector_add, x, y)


def test_vector_add_is_faster_from_a_hot_cache(gpu_bench: GpuBench) -> None:
    x, y = torch.randn(2, COUNT // 64, device=gpu_bench.device)
    cold = gpu_bench.measure(vector_add, (x, y), cache="cold", label="vector_add, cold L2")
    hot = gpu_bench.measure(vector_add, (x, y), cache="hot", label="vector_add, hot L2")
    assert hot.median_us < cold.median_us
