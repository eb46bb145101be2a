"""Search for the shape at which a kernel is wrong or slow: hypothesis draws shapes, and shrinks the one it finds."""

import pytest
import torch
from hypothesis import given, settings

from example_suite import ON_GPU
from example_suite.kernels.scale_rows import scale_rows
from example_suite.kernels.vector_add import vector_add
from pytest_gpubench import GpuBench
from pytest_gpubench.errors import LimitBroken
from pytest_gpubench.strategies import shapes, tensor


def torch_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def torch_scale_rows(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    return x * factors[:, None]


# a limit for every length is lower than one for the length that a kernel was tuned for
@pytest.mark.perf(min_speedup=0.2, given_budget_s=5)
@settings(max_examples=20)
@given(shape=shapes(dims=1, max_bytes="32MiB" if ON_GPU else "64KiB"))
def test_vector_add_is_slow_at_no_length(gpu_bench: GpuBench, shape: tuple[int]) -> None:
    gpu_bench.compare(vector_add, torch_add, args=(tensor(shape), tensor(shape, seed=1)), rtol=0, atol=0)


@pytest.mark.perf(min_speedup=0.4)
def test_scale_rows_keeps_up_at_the_shape_it_was_tuned_for(gpu_bench: GpuBench) -> None:
    rows, columns = (4096, 4096) if ON_GPU else (16, 256)
    gpu_bench.compare(scale_rows, torch_scale_rows, args=(tensor((rows, columns)), tensor(rows, seed=1)))


# the defect that the test above misses is found, and shrunk to about (1, 1025)
@pytest.mark.skipif(not ON_GPU, reason="needs a GPU: it is only slow, not wrong")
@pytest.mark.xfail(raises=LimitBroken, strict=True, reason="slow where the width is no multiple of 16")
@pytest.mark.perf(min_speedup=0.4, given_budget_s=5)
@settings(max_examples=20)
@given(shape=shapes(dims=2, min_side=(1, 1024), max_side=(None, 8192), max_bytes="32MiB"))
def test_scale_rows_is_slow_at_no_shape(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    gpu_bench.compare(scale_rows, torch_scale_rows, args=(tensor(shape), tensor(shape[0], seed=1)))
