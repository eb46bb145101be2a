"""A kernel that is slow for most widths, and the search that finds one. The limit holds on an H200."""

import pytest
import torch
from hypothesis import given, settings

from example_suite.kernels.ragged import scale_rows
from example_suite.sizes import EXAMPLES, FULL_SIZE, row_shapes
from pytest_gpubench import GpuBench
from pytest_gpubench.errors import LimitBroken
from pytest_gpubench.strategies import tensor


def torch_scale_rows(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    return x * factors[:, None]


def inputs(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor((rows, columns)), tensor(rows, seed=1)


@pytest.mark.parametrize(("rows", "columns"), [(16, 1024), (7, 781), (1, 1040), (3, 1)])
def test_matches_torch(rows: int, columns: int) -> None:
    x, factors = inputs(rows, columns)
    torch.testing.assert_close(scale_rows(x, factors), torch_scale_rows(x, factors), rtol=0, atol=0)


@pytest.mark.perf(min_speedup=0.8)
def test_scale_rows_keeps_up_at_the_size_it_was_tuned_for(gpu_bench: GpuBench) -> None:
    """Show what a test at one size says of this kernel: nothing bad."""
    x, factors = inputs(*((4096, 4096) if FULL_SIZE else (16, 256)))
    gpu_bench.compare(scale_rows, torch_scale_rows, args=(x, factors), rtol=0, atol=0)


# strict where limits are judged: a search that finds nothing there is broken
@pytest.mark.xfail(FULL_SIZE, raises=LimitBroken, strict=True, reason="slow where the width is no multiple of 16")
@pytest.mark.perf(min_speedup=0.5, given_budget=20)
@given(shape=row_shapes("float32", narrowest=512, widest=8192 if FULL_SIZE else 512))
@settings(deadline=None, max_examples=EXAMPLES)
def test_scale_rows_is_slow_at_no_shape(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    """Find the smallest shape at which the kernel loses: about (1, 513)."""
    gpu_bench.compare(scale_rows, torch_scale_rows, args=inputs(*shape), rtol=0, atol=0)
